// How fast one thread makes token ids of text, as JSON.
//
//   tokenizer_bench MODEL TEXT [REPETITIONS]      default 5
//
// MODEL is a directory with a tokenizer, TEXT any text file. `rows`: the file in parts of 4 KiB, as
// training rows are; `document`: all of it at once. `mb_per_s` is that of the fastest repetition,
// in 10^6 bytes of text per second of the thread's processor time; the first one fills the cache.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include "common/base/files.h"
#include "common/base/json.h"
#include "trainer/text/tokenizer/tokenizer.h"

namespace muster {
namespace {

constexpr std::size_t kRowBytes = 4096;
constexpr std::int64_t kMaxTextBytes = std::int64_t{1} << 30;

double ThreadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

nlohmann::json Measure(const Tokenizer& tokenizer, std::string_view text, std::size_t part_bytes,
                       int repetitions) {
  double least = std::numeric_limits<double>::max();
  std::size_t tokens = 0;
  for (int i = 0; i < repetitions; ++i) {
    tokens = 0;
    const double begin = ThreadSeconds();
    for (std::size_t at = 0; at < text.size(); at += part_bytes)
      tokens += tokenizer.Encode(text.substr(at, part_bytes)).size();
    least = std::min(least, ThreadSeconds() - begin);
  }
  return {{"tokens", tokens}, {"mb_per_s", static_cast<double>(text.size()) * 1e-6 / least}};
}

int Run(const std::string& model, const std::string& path, int repetitions) {
  const auto tokenizer = Tokenizer::Load(model);
  const auto text = ReadFile(path, kMaxTextBytes);
  for (const Status& status : {tokenizer.status(), text.status()}) {
    if (status.ok()) continue;
    std::fprintf(stderr, "tokenizer_bench: %s\n", status.message().c_str());
    return 1;
  }
  const nlohmann::json report = {
      {"bytes", text->size()},
      {"rows", Measure(*tokenizer, *text, kRowBytes, repetitions)},
      {"document",
       Measure(*tokenizer, *text, std::max<std::size_t>(text->size(), 1), repetitions)}};
  std::printf("%s\n", report.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: tokenizer_bench MODEL TEXT [REPETITIONS]\n");
    return 2;
  }
  return muster::Run(argv[1], argv[2], argc > 3 ? std::atoi(argv[3]) : 5);
}
