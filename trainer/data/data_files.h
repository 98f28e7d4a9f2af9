// DataFiles: the files that data.train or data.eval name, folders opened up.
//
// Pure but for asking the file system; any thread.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"

namespace muster {

enum class DataKind {
  kText,    // .jsonl and .json, also with .gz after it
  kTokens,  // .npy and .bin
};

struct DataFiles {
  DataKind kind = DataKind::kText;
  // As they were named; those of a folder by name. What row comes first follows from it.
  std::vector<std::string> paths;
};

// `named`: files and folders, at least one, of one kind; `key` is the job file's, for errors. What
// else lies in a folder is left alone, and what lies in folders within it is not looked for.
// kNotFound: there is no such file. kInvalidArgument: an ending that is not read, with the way out.
Result<DataFiles> FindDataFiles(const std::vector<std::string>& named, const std::string& key);

}  // namespace muster
