// Reading and writing safetensors files.
//
// SafetensorsModel presents a model directory, one file or many behind an index, as one set of
// tensors, and reads any interval of a tensor with a pread of just those bytes: a rank never
// touches the weights of another. A file is trusted with nothing: its header is checked against
// the file's real size before anything is allocated for it, and every tensor's interval against
// its shape and its neighbours, so a truncated or forged file is an error at Open.
//
// SafetensorsWriter streams a file of any size through one small buffer.
//
// Owned by the code that opened it. SafetensorsModel is immutable but for GrowRows: any thread,
// also several at once. SafetensorsWriter belongs to one thread. All calls block on the file
// system. Errors: kNotFound for a missing file or tensor, kInvalidArgument or kDataLoss for a file
// that is malformed or cut short, kUnimplemented for an element type that is no float of at most 32
// bits.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/base/unique_fd.h"

namespace muster {

enum class TensorType {
  kBool,
  kU8,
  kI8,
  kF8E4M3,
  kF8E5M2,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kI64,
  kU64,
  kF64
};
std::string_view TensorTypeName(TensorType type);  // as in the file: "BF16"
std::int64_t TensorTypeSize(TensorType type);      // bytes of an element
bool IsReadableType(TensorType type);              // ReadFloats takes it: F32, BF16, F16

struct TensorSpec {
  std::string name;
  TensorType type = TensorType::kF32;
  std::vector<std::int64_t> shape;

  std::int64_t count() const;  // elements: the product of the shape, 1 for a scalar
  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

class SafetensorsModel {
 public:
  // A directory with model.safetensors, or with model.safetensors.index.json and its shards.
  static Result<SafetensorsModel> Open(const std::string& dir);
  // A single file.
  static Result<SafetensorsModel> OpenFile(const std::string& path);

  SafetensorsModel(SafetensorsModel&&) noexcept;
  SafetensorsModel& operator=(SafetensorsModel&&) noexcept;
  ~SafetensorsModel();

  // Null if there is no such tensor. Valid as long as the model.
  const TensorSpec* Find(const std::string& name) const;
  std::vector<std::string> names() const;  // sorted
  // The file that holds a tensor which is there.
  const std::string& FileOf(const std::string& name) const;
  // The metadata of the first file: {"format": "pt"}.
  const std::map<std::string, std::string>& metadata() const;

  // A tensor [experts, ...] is one for each expert from here on, NAME.0, NAME.1 and so on: a matrix
  // [in, out] of it is [out, in], as linear layers have theirs, and a vector is as it is. Where the
  // files hold NAME_blocks and NAME_scales in its place (mxfp4.h), these are not seen any more, and
  // values are theirs, as BF16. Before anyone reads. kNotFound, kInvalidArgument where it has not
  // so many parts.
  Status SplitExperts(const std::string& name, std::int64_t experts);

  // Gives a matrix `rows` rows, no fewer than it has: Find then reports so many, and those that the
  // files lack are the mean of those that they hold, column by column, added up in fp64. So
  // transformers fills an embedding that it resizes, but for the noise of their covariance that it
  // adds (mean_resizing). Before anyone reads. kInvalidArgument: no matrix, or fewer rows.
  Status GrowRows(const std::string& name, std::int64_t rows);
  // Before elements up to `end` are read: reads all rows that the files hold, once, where that mean
  // is needed for them. `on_read`: after each piece of about 4 MiB; empty: not called. A read that
  // needs the mean and finds none does the same without a word.
  Status PrepareGrownRows(const std::string& name, std::int64_t end,
                          const std::function<void()>& on_read) const;

  // out[0 .. count) = elements [begin, begin + count) of the flattened tensor, as float. F32, BF16
  // and F16 only.
  Status ReadFloats(const std::string& name, std::int64_t begin, std::int64_t count,
                    float* out) const;

  // The same elements as they are stored, of any type: count * TensorTypeSize(type) bytes. Only
  // where they lie in this order: not of grown rows, nor of matrices that SplitExperts has turned.
  bool LiesInOrder(const std::string& name) const;
  Status ReadStored(const std::string& name, std::int64_t begin, std::int64_t count,
                    void* out) const;

 private:
  struct Impl;
  explicit SafetensorsModel(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class SafetensorsWriter {
 public:
  // Starts `path` + ".tmp.PID" with the header of `tensors`, of types F64, F32, BF16, F16 or U8.
  static Result<SafetensorsWriter> Create(const std::string& path, std::vector<TensorSpec> tensors,
                                          const std::map<std::string, std::string>& metadata = {
                                              {"format", "pt"}});

  SafetensorsWriter(SafetensorsWriter&&) noexcept;
  SafetensorsWriter& operator=(SafetensorsWriter&&) = delete;
  // Removes the temporary file unless Finish succeeded.
  ~SafetensorsWriter();

  // The next `count` elements of the tensors in declared order, converted to their tensor's type.
  // A call may end inside a tensor and may span several. Not for tensors of type F64 or U8.
  Status AppendFloats(const float* values, std::int64_t count);

  // The next `count` elements of the tensor whose turn it is, in its own type. A call may end
  // inside the tensor, not beyond it.
  Status AppendStored(const void* values, std::int64_t count);

  // Checks that every element was appended, then makes the file durable under its real name.
  Status Finish();

 private:
  SafetensorsWriter() = default;
  Status WriteBuffer();
  Status WriteBehind();
  void AppendConverted(const float* values, std::int64_t count, TensorType type);
  void SkipFinishedTensors();
  const TensorSpec& NextTensor();  // that the next element belongs to

  std::string path_;
  std::string temporary_;  // empty once finished or moved from
  UniqueFd fd_;
  std::vector<TensorSpec> tensors_;
  std::size_t current_ = 0;    // tensor that the next element belongs to
  std::int64_t appended_ = 0;  // elements of it so far
  std::int64_t written_ = 0;   // bytes in the file
  std::int64_t sent_ = 0;      // of them on their way to the disk
  std::string buffer_;
};

}  // namespace muster
