// How fast rows of text become packed rows of token ids, as a job's start makes them, as JSON.
//
//   rows_bench MODEL ROWS LENGTH THREADS [REPETITIONS]      default 3
//
// MODEL is a directory with a tokenizer, ROWS a .jsonl file of {"text"}, LENGTH that of a packed
// row. `tokenize_s`: from nothing to a token cache that is durable, checked and open;
// `reopen_s`: a later start; `pack_s`: into rows of LENGTH. Wall seconds, of the fastest
// repetition each; `peak_mb` is what the process held more than before.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "common/base/clock.h"
#include "common/base/host_peak.h"
#include "common/base/json.h"
#include "trainer/data/packed_dataset.h"
#include "trainer/data/text_rows.h"

namespace muster {
namespace {

struct Fastest {
  double tokenize_s = std::numeric_limits<double>::max();
  double reopen_s = std::numeric_limits<double>::max();
  double pack_s = std::numeric_limits<double>::max();
};

template <typename Work>
void Time(double* fastest, Work&& work) {
  const TimePoint begin = SystemClock().Now();
  work();
  *fastest = std::min(*fastest, ToSeconds(SystemClock().Now() - begin));
}

int Run(const std::string& model, const std::string& rows, int length, int threads,
        int repetitions) {
  const auto tokenizer = Tokenizer::Load(model);
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "rows_bench: %s\n", tokenizer.status().message().c_str());
    return 1;
  }
  const TextOptions options{.max_seq_len = length,
                            .model_dir = model,
                            .vocab_size = tokenizer->vocab_size(),
                            .split_text = true};
  const TextRowsRun run{.cache_dir = model + "/cache", .cache_threads = threads};
  Fastest fastest;
  DatasetStats stats;
  const HostPeak peak;
  for (int i = 0; i < repetitions; ++i) {
    std::filesystem::remove_all(run.cache_dir);
    Result<TextRows> loaded = NotFound("not tried");
    // The tables are shared, but what earlier repetitions have encoded is not.
    const Tokenizer fresh = tokenizer->Share();
    Time(&fastest.tokenize_s, [&] { loaded = LoadTextRows({rows}, fresh, options, run); });
    Time(&fastest.reopen_s, [&] { loaded = LoadTextRows({rows}, fresh, options, run); });
    if (!loaded.ok() || !loaded->notes.empty()) {
      std::fprintf(stderr, "rows_bench: %s\n",
                   loaded.ok() ? loaded->notes[0].c_str() : loaded.status().message().c_str());
      return 1;
    }
    Time(&fastest.pack_s,
         [&] { stats = PackedDataset(std::move(loaded->dataset), length, {.seed = 1}).stats(); });
  }
  const double room = static_cast<double>(stats.rows) * length;
  const nlohmann::json report = {
      {"documents", stats.documents},
      {"tokens", stats.tokens},
      {"packed_rows", stats.rows},
      {"padding", 1 - static_cast<double>(stats.tokens) / room},
      {"tokenize_s", fastest.tokenize_s},
      {"reopen_s", fastest.reopen_s},
      {"pack_s", fastest.pack_s},
      {"peak_mb", static_cast<double>(peak.bytes() - peak.begin_bytes()) * 1e-6}};
  std::printf("%s\n", report.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: rows_bench MODEL ROWS LENGTH THREADS [REPETITIONS]\n");
    return 2;
  }
  return muster::Run(argv[1], argv[2], std::atoi(argv[3]), std::atoi(argv[4]),
                     argc > 5 ? std::atoi(argv[5]) : 3);
}
