#include "trainer/inputs/load_rows.h"

#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <optional>
#include <thread>
#include <utility>

#include "common/base/clock.h"
#include "common/job_spec/parse.h"
#include "trainer/data/data_files.h"
#include "trainer/data/joined_dataset.h"
#include "trainer/data/packed_dataset.h"
#include "trainer/data/subset_dataset.h"
#include "trainer/data/text_rows.h"
#include "trainer/data/token_dataset.h"
#include "trainer/inputs/vocab_growth.h"
#include "trainer/text/chat/chat.h"

namespace muster {
namespace {

constexpr Duration kBetweenLines = std::chrono::seconds(10);
constexpr std::int64_t kAskedRows = 256;

// The processors that this process may run on.
int Processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// A line every few seconds on how the rows get on.
class RowsPerSecond {
 public:
  RowsPerSecond(std::string name, const InputEvents& events)
      : name_(std::move(name)), events_(events) {}

  void operator()(std::int64_t rows) {
    const TimePoint now = SystemClock().Now();
    if (!events_.on_line || now - told_ < kBetweenLines) return;
    char text[100];
    std::snprintf(text, sizeof text, ": %lld rows tokenized, %.0f rows/s",
                  static_cast<long long>(rows),
                  static_cast<double>(rows - told_rows_) / ToSeconds(now - told_));
    events_.on_line(name_ + text);
    told_ = now;
    told_rows_ = rows;
  }

 private:
  const std::string name_;
  const InputEvents& events_;
  TimePoint told_ = SystemClock().Now();
  std::int64_t told_rows_ = 0;
};

bool IsTrainedOn(std::int64_t id, const Dataset& rows, std::int64_t row) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(rows.Length(row))), labels(ids.size());
  // A row that cannot be read is reported when it is trained on.
  if (!rows.Read(row, ids, labels).ok()) return false;
  return std::find(labels.begin(), labels.end(), id) != labels.end();
}

// Rows of conversations may be some among others.
bool AnyTrainsOn(std::int64_t id, const Dataset& rows) {
  const std::int64_t asked = std::min(kAskedRows, rows.size());
  for (std::int64_t i = 0; i < asked; ++i) {
    if (IsTrainedOn(id, rows, i * rows.size() / asked)) return true;
  }
  return false;
}

// What all rows of a job are read with.
struct RowsLoader {
  const JobSpec& spec;
  const DataSpec& data;
  const std::string& model_dir;
  const ModelConfig& config;
  const InputEvents& events;
  const std::string& tokenizer_json;
  std::optional<Tokenizer> tokenizer = {};
  std::vector<std::string> notes = {};

  TrainResult<LoadedRows> Load() {
    LoadedRows rows;
    // The few first: what is wrong with them is reported before the many are tokenized.
    if (!data.eval.empty()) {
      MUSTER_ASSIGN_OR_RETURN(rows.eval, LoadFiles(data.eval, "train.data.eval"));
    }
    MUSTER_ASSIGN_OR_RETURN(rows.train, LoadFiles(data.train, "train.data.train"));
    rows.ends_of_turn = TaughtEndsOfTurn(*rows.train);
    if (data.eval.empty() && data.eval_ratio > 0) {
      MUSTER_ASSIGN_OR_RETURN(
          SplitRows split,
          FromInput(FailureKind::kData,
                    SplitByRatio(std::move(rows.train), data.eval_ratio, spec.train->seed)));
      rows.train = std::move(split.train);
      rows.eval = std::move(split.eval);
    }
    if (data.packing) {
      rows.train = Packed(std::move(rows.train), data.shuffle);
      // In the order of its rows, because it is read once through.
      if (rows.eval) rows.eval = Packed(std::move(rows.eval), /*shuffle=*/false);
    }
    rows.notes = std::move(notes);
    return rows;
  }

  using Rows = std::unique_ptr<const Dataset>;

  TrainResult<Rows> LoadFiles(const std::vector<std::string>& named, const std::string& key) {
    std::vector<std::string> paths;
    for (const std::string& path : named) paths.push_back(ResolvePath(spec, path));
    MUSTER_ASSIGN_OR_RETURN(const DataFiles files,
                            FromInput(FailureKind::kData, FindDataFiles(paths, key)));
    if (files.kind == DataKind::kText) return LoadText(files.paths);
    return FromInput(FailureKind::kData, OpenTokens(files.paths));
  }

  Result<Rows> OpenTokens(const std::vector<std::string>& paths) const {
    std::vector<Rows> parts;
    std::int64_t count = 0;
    for (const std::string& path : paths) {
      MUSTER_ASSIGN_OR_RETURN(TokenDataset part,
                              TokenDataset::Open(path, {.max_seq_len = data.max_seq_len,
                                                        .vocab_size = config.vocab_size}));
      count += part.size();
      parts.push_back(std::make_unique<const TokenDataset>(std::move(part)));
    }
    // The order of rows is kept in 32 bits.
    if (count > std::numeric_limits<std::int32_t>::max())
      return InvalidArgument(NameOfFiles(paths) + " have " + std::to_string(count) +
                             " rows, more than 2,147,483,647; make the rows longer");
    if (parts.size() == 1) return std::move(parts.front());
    return Rows(std::make_unique<const JoinedDataset>(std::move(parts)));
  }

  // The rows of a text file need the model's tokenizer; token ids need none.
  TrainResult<Rows> LoadText(const std::vector<std::string>& paths) {
    if (!tokenizer) {
      MUSTER_ASSIGN_OR_RETURN(
          tokenizer, FromInput(FailureKind::kModel, LoadTokenizer(model_dir, tokenizer_json)));
    }
    // One rank of a node tokenizes while the others wait for it, so that their processors are free.
    const ResourceSpec& has = spec.resources;
    const TextRowsRun run{
        .cache_dir = TokenCacheDirectory(spec),
        .cache_threads = std::min(has.cpus_per_rank * has.ranks_per_node, Processors()),
        .threads = std::min(has.cpus_per_rank, Processors()),
        .on_read = events.on_read,
        .on_wait = events.on_wait,
        .on_rows = RowsPerSecond(NameOfFiles(paths), events)};
    MUSTER_ASSIGN_OR_RETURN(
        TextRows loaded,
        FromInput(FailureKind::kData, LoadTextRows(paths, *tokenizer, Options(), run)));
    std::move(loaded.notes.begin(), loaded.notes.end(), std::back_inserter(notes));
    return std::move(loaded.dataset);
  }

  std::vector<std::int32_t> TaughtEndsOfTurn(const Dataset& rows) const {
    if (!tokenizer) return {};
    const Result<ChatTemplate> chat =
        ChooseChatTemplate(ChatTemplateChoice(spec), model_dir, *tokenizer);
    if (!chat.ok()) return {};
    std::vector<std::int32_t> ids = EndsOfTurn(*chat, *tokenizer);
    std::erase_if(ids, [&](std::int32_t id) { return !AnyTrainsOn(id, rows); });
    return ids;
  }

  TextOptions Options() const {
    TextOptions options{.max_seq_len = data.max_seq_len,
                        .text_field = data.text_field,
                        .chat_template = ChatTemplateChoice(spec),
                        .chat_date = data.chat_date,
                        .model_dir = model_dir,
                        .train_on_all = data.train_on_all,
                        .vocab_size = config.vocab_size,
                        .tokenizer_json = tokenizer_json,
                        .split_text = data.packing};
    if (!config.eos_token_ids.empty()) options.eos_token_id = config.eos_token_ids.front();
    return options;
  }

  Rows Packed(Rows rows, bool shuffle) const {
    return std::make_unique<const PackedDataset>(
        std::move(rows), data.max_seq_len,
        BatchOrder{.seed = spec.train->seed, .shuffle = shuffle});
  }
};

}  // namespace

std::string ResolvePath(const JobSpec& spec, const std::string& path) {
  if (path.empty() || path.front() == '/' || spec.workdir.empty()) return path;
  return spec.workdir + "/" + path;
}

std::string ChatTemplateChoice(const JobSpec& spec) {
  const std::string& choice = spec.train->data.chat_template;
  return choice.ends_with(".jinja") ? ResolvePath(spec, choice) : choice;
}

std::string NameOfFiles(const std::vector<std::string>& paths) {
  return paths.front() +
         (paths.size() == 1 ? "" : " and " + std::to_string(paths.size() - 1) + " more");
}

std::string TokenCacheDirectory(const JobSpec& spec) {
  const std::string& chosen = spec.train->data.cache;
  if (chosen == "none") return "";
  if (!chosen.empty()) return ResolvePath(spec, chosen);
  const std::filesystem::path output = OutputDirectory(spec, {});
  return (output.parent_path() / ".muster-cache").string();
}

TrainResult<LoadedRows> LoadRows(const JobSpec& spec, const std::string& model_dir,
                                 const ModelConfig& config, const InputEvents& events,
                                 const std::string& tokenizer_json) {
  return RowsLoader{spec, spec.train->data, model_dir, config, events, tokenizer_json}.Load();
}

}  // namespace muster
