// LoadRows: the rows that a job trains and evaluates on, as its data block describes them.
//
// Every rank calls it for itself; ranks that share a disk share the token cache on it. Blocks on
// the file system, in the caller's thread; the rows belong to the caller.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/job_spec/job_spec.h"
#include "trainer/core/model_config.h"
#include "trainer/core/train_status.h"
#include "trainer/data/dataset.h"

namespace muster {

// `path` below the job's working directory, unless it is absolute.
std::string ResolvePath(const JobSpec& spec, const std::string& path);

// What ChooseChatTemplate takes for data.chat_template: a file's path is one below the working
// directory.
std::string ChatTemplateChoice(const JobSpec& spec);

// "rows.jsonl", or "rows.jsonl and 2 more", for people.
std::string NameOfFiles(const std::vector<std::string>& paths);

// Where rows of text are kept once they are tokenized; empty: nowhere. Beside the job's output, so
// that jobs which write side by side share it, that it goes with none of their results, and that it
// lies where the job can write.
std::string TokenCacheDirectory(const JobSpec& spec);

// Callbacks while inputs are read, in the thread that reads them. They may be empty.
struct InputEvents {
  std::function<void()> on_read = {};  // something moves
  // Another process does the work, moving or not; every few milliseconds.
  std::function<void()> on_wait = {};
  std::function<void(const std::string& line)> on_line = {};  // for people, where it takes long
};

struct LoadedRows {
  std::unique_ptr<const Dataset> train;
  std::unique_ptr<const Dataset> eval;  // null: the job evaluates on nothing
  // The tokens that end an assistant's turn in the job's chat template, those of them that the rows
  // to train on teach, as far as some rows from every part show. None: no rows are text.
  std::vector<std::int32_t> ends_of_turn;
  std::vector<std::string> notes;  // for people: what the cache could not do
};

// `tokenizer_json`: the tokenizer of rows of text; empty: the model directory's.
TrainResult<LoadedRows> LoadRows(const JobSpec& spec, const std::string& model_dir,
                                 const ModelConfig& config, const InputEvents& events,
                                 const std::string& tokenizer_json = {});

}  // namespace muster
