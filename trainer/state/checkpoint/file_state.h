// FileState: a whole training state in one safetensors file, and how such a file is written.
//
// Tensors `<name>` are the weights, `optimizer.<kind>.<name>` the moments, each in the element type
// in which it was trained. The metadata holds {"format": "pt", "muster.state": "1",
// "muster.cursor": "{...}"}, and "muster.adapter" where the state is an adapter's. Any safetensors
// reader opens it. A file without these keys, say a Hugging Face model, is a state of weights alone
// at step 0.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/formats/safetensors.h"
#include "trainer/state/checkpoint/state_reader.h"

namespace muster {

class FileState final : public StateReader {
 public:
  // kNotFound, kDataLoss and kInvalidArgument as SafetensorsModel; kDataLoss for a cursor that is
  // not understood.
  static Result<std::unique_ptr<FileState>> Open(const std::string& path);

  const std::string& path() const override { return path_; }
  const TrainCursor& cursor() const override { return cursor_; }
  const std::optional<AdapterOrigin>& adapter() const override { return adapter_; }
  std::vector<std::string> kinds() const override;
  std::vector<std::string> tensors(std::string_view kind) const override;
  const StateTensor* Find(std::string_view kind, const std::string& tensor) const override;
  Status Read(std::string_view kind, const std::string& tensor, std::int64_t begin,
              std::int64_t count, void* out) override;

 private:
  FileState(std::string path, SafetensorsModel file)
      : path_(std::move(path)), file_(std::move(file)) {}
  Status ReadMetadata();
  Status Index();

  const std::string path_;
  const SafetensorsModel file_;
  TrainCursor cursor_;
  std::optional<AdapterOrigin> adapter_;
  std::map<std::string, std::map<std::string, StateTensor>, std::less<>> index_;  // by kind, name
};

// Writes all of `state` as such a file: temporary name, fsync, rename. Memory is bounded, tensor
// after tensor. kDataLoss when the state has holes or is damaged: no file is left then.
Status WriteStateFile(StateReader& state, const std::string& path);

}  // namespace muster
