// Every target over its corpus, and over what a simple mutator makes of it, in the ordinary build.
// libFuzzer, which looks for new code, is for the preset `fuzz`.
//
//   MUSTER_FUZZ_SECONDS   of mutation for each target; 5 by default
//   MUSTER_FUZZ_SEED      of the mutator, which a run prints
//   MUSTER_FUZZ_SAVE      a file that gets each input before it is tried: the last one failed
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "fuzz_targets.h"

namespace muster {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMaxInputBytes = 16 << 10;
// What takes longer hangs. A machine under load stretches milliseconds to this at most.
constexpr auto kMaxTime = std::chrono::seconds(5);

std::uint64_t NumberOf(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

struct Sample {
  std::string name;
  std::string bytes;
};

std::vector<Sample> CorpusOf(const std::string& target) {
  std::vector<Sample> samples;
  const std::filesystem::path folder =
      std::filesystem::path(MUSTER_SOURCE_DIR) / "tests/fuzz/corpus" / target;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    samples.push_back({entry.path().filename(), {std::istreambuf_iterator<char>(file), {}}});
  }
  std::ranges::sort(samples, {}, &Sample::name);
  return samples;
}

// xorshift64*: the same inputs for the same seed, everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 2 + 1) {}
  std::uint64_t Next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 2685821657736338717ULL;
  }
  std::size_t Below(std::size_t limit) { return limit == 0 ? 0 : (Next() >> 11) % limit; }

 private:
  std::uint64_t state_;
};

// What parsers stumble over.
const std::string kPieces[] = {"0",
                               "-1",
                               "1e999",
                               "99999999999999999999",
                               "-9223372036854775808",
                               "2147483648",
                               "0x",
                               ".5",
                               "null",
                               "[",
                               "]",
                               "{",
                               "}",
                               "\"",
                               "\\u0000",
                               "\\ud800",
                               ":",
                               ",",
                               "'",
                               "%",
                               "*",
                               "&a",
                               "<<",
                               "\r\n\r\n",
                               "\n",
                               "\t",
                               std::string(1, '\0'),
                               "\xff",
                               "\xc0\x80",
                               "\xed\xa0\x80",
                               "\xef\xbb\xbf",
                               std::string(4, '\xff'),
                               std::string(300, '['),
                               std::string(300, 'a')};

void MutateOnce(Random& random, const std::vector<Sample>& corpus, std::string* bytes) {
  const std::size_t at = random.Below(bytes->size() + 1);
  const std::size_t length = 1 + random.Below(std::min<std::size_t>(64, bytes->size() - at + 1));
  const std::string& other = corpus[random.Below(corpus.size())].bytes;
  const std::size_t from = random.Below(other.size() + 1);
  switch (random.Below(8)) {
    case 0: bytes->insert(at, 1, static_cast<char>(random.Below(256))); break;
    case 1: bytes->erase(at, length); break;
    case 2: bytes->insert(at, bytes->substr(at, length)); break;
    case 3: bytes->insert(at, kPieces[random.Below(std::size(kPieces))]); break;
    case 4: bytes->replace(at, length, kPieces[random.Below(std::size(kPieces))]); break;
    case 5: bytes->replace(at, length, other.substr(from, length)); break;
    case 6:
      bytes->resize(at);
      *bytes += other.substr(from);
      break;
    default:
      if (at < bytes->size()) (*bytes)[at] ^= static_cast<char>(1 << random.Below(8));
  }
  if (bytes->size() > kMaxInputBytes) bytes->resize(kMaxInputBytes);
}

void Try(const FuzzTarget& target, const std::string& bytes, const std::string& what) {
  static const char* const save = std::getenv("MUSTER_FUZZ_SAVE");
  if (save != nullptr) std::ofstream(save, std::ios::binary) << bytes;
  const auto begin = Clock::now();
  target.function(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  EXPECT_LT(Clock::now() - begin, kMaxTime) << what;
}

class FuzzCorpusTest : public ::testing::TestWithParam<FuzzTarget> {};

TEST_P(FuzzCorpusTest, NothingInTheCorpusBreaksTheTarget) {
  const std::vector<Sample> corpus = CorpusOf(GetParam().name);
  ASSERT_FALSE(corpus.empty());
  for (const Sample& sample : corpus) {
    std::cout << sample.name << std::endl;
    Try(GetParam(), sample.bytes, sample.name);
  }
  Try(GetParam(), "", "nothing");
}

TEST_P(FuzzCorpusTest, NothingThatIsMadeOfTheCorpusBreaksTheTarget) {
  const std::vector<Sample> corpus = CorpusOf(GetParam().name);
  ASSERT_FALSE(corpus.empty());
  const std::uint64_t seed = NumberOf("MUSTER_FUZZ_SEED", std::random_device()());
  const auto end = Clock::now() + std::chrono::seconds(NumberOf("MUSTER_FUZZ_SECONDS", 5));
  std::cout << "MUSTER_FUZZ_SEED=" << seed << std::endl;
  Random random(seed);
  std::uint64_t inputs = 0;
  for (; Clock::now() < end && !HasFailure(); ++inputs) {
    std::string bytes = corpus[random.Below(corpus.size())].bytes;
    for (std::size_t count = 1 + random.Below(8); count > 0; --count)
      MutateOnce(random, corpus, &bytes);
    Try(GetParam(), bytes, "input " + std::to_string(inputs));
  }
  RecordProperty("inputs", std::to_string(inputs));
  EXPECT_GT(inputs, 0u);
}

INSTANTIATE_TEST_SUITE_P(Targets, FuzzCorpusTest, ::testing::ValuesIn(kFuzzTargets),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace muster
