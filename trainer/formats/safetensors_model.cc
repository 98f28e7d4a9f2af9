#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <mutex>

#include "common/base/files.h"
#include "common/base/json.h"
#include "trainer/core/convert.h"
#include "trainer/core/interval.h"
#include "trainer/formats/mxfp4.h"
#include "trainer/formats/safetensors_header.h"

namespace muster {
namespace {

constexpr std::int64_t kMaxIndexBytes = 256 << 20;
constexpr std::int64_t kReadBytes = 1 << 20;
constexpr std::int64_t kMeanElements = 1 << 20;  // of a piece of rows whose mean is taken
constexpr char kSingleFile[] = "model.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";

// Tensor name to file name, as an index lists them.
Result<std::map<std::string, std::string>> ReadIndex(const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxIndexBytes));
  try {
    const auto json = nlohmann::json::parse(text);
    const auto map = json.find("weight_map");
    if (map == json.end() || !map->is_object() || map->empty())
      return InvalidArgument(path + " has no weight_map from tensors to files");
    std::map<std::string, std::string> files;
    for (const auto& [tensor, file] : map->items()) {
      const auto name = file.get<std::string>();
      if (name.empty() || name.find('/') != std::string::npos)
        return InvalidArgument(path + ": tensor " + tensor + " lies in \"" + name +
                               "\", which is no file name");
      files[tensor] = name;
    }
    return files;
  } catch (const nlohmann::json::exception& error) {
    return InvalidArgument(path + " is not a valid index: " + error.what());
  }
}

std::string ShapeOf(const TensorSpec& tensor) {
  std::string text;
  for (const std::int64_t size : tensor.shape)
    text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

Status NoWeights(const std::string& dir) {
  std::error_code error;
  std::string why = "there is no " + dir + "/" + kSingleFile + " (nor " + kIndexFile + ")";
  if (std::filesystem::exists(dir + "/pytorch_model.bin", error) ||
      std::filesystem::exists(dir + "/pytorch_model.bin.index.json", error))
    return NotFound(why + ", only pickled weights (pytorch_model.bin); save the model again as " +
                    "safetensors: model.save_pretrained(dir, safe_serialization=True)");
  return NotFound(why + "; a model directory holds config.json, tokenizer.json and " + kSingleFile +
                  " (or its shards)");
}

}  // namespace

struct SafetensorsModel::Impl {
  enum class Order {
    kInOrder,
    kTurned,  // the file has the matrix's transpose
    kMxfp4,
  };
  struct File {
    std::string path;
    UniqueFd fd;
    std::int64_t data_begin = 0;
  };
  struct Entry {
    TensorSpec spec;
    std::size_t file = 0;
    std::int64_t begin = 0;  // bytes from the start of the file
    Order order = Order::kInOrder;
    // Where the scales of kMxfp4 are; its blocks are at `begin`.
    std::size_t scales_file = 0;
    std::int64_t scales_begin = 0;
  };

  // A matrix that has got more rows than its file has.
  struct Growth {
    std::int64_t stored = 0;  // elements in the file
    std::mutex mutex;
    std::vector<float> mean;  // of each column; empty until it is needed
  };

  std::vector<File> files;
  std::map<std::string, Entry> entries;
  std::map<std::string, Growth> growths;
  std::map<std::string, std::string> metadata;

  Status ReadFile(const Entry& entry, std::int64_t begin, std::int64_t count, float* out) const;
  Status ReadInOrder(const Entry& entry, std::int64_t begin, std::int64_t count, float* out) const;
  Status ReadTurned(const Entry& entry, std::int64_t begin, std::int64_t count, float* out) const;
  // Rows and columns of the matrix, as it is shown; out is [rows, columns] of them.
  Status ReadTurnedPart(const Entry& entry, const Interval& rows, const Interval& columns,
                        float* out) const;
  Status ReadMxfp4(const Entry& entry, std::int64_t begin, std::int64_t count, float* out) const;
  Result<Entry> TakeMxfp4(const std::string& name);
  Status FindMean(const Entry& entry, Growth* growth, const std::function<void()>& on_read) const;

  // Adds the tensors for which `wanted` says so.
  template <typename Wanted>
  Status AddFile(const std::string& path, const Wanted& wanted) {
    // Opening a pipe would wait for its writer before it could be refused.
    UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd.valid()) return ErrnoStatus(errno, "open " + path);
    MUSTER_ASSIGN_OR_RETURN(SafetensorsHeader header, ReadSafetensorsHeader(fd.get(), path));
    if (files.empty()) metadata = header.metadata;
    for (SafetensorsHeader::Tensor& tensor : header.tensors) {
      if (!wanted(tensor.spec.name)) continue;
      const std::string name = tensor.spec.name;
      entries[name] = {std::move(tensor.spec), files.size(), header.data_begin + tensor.begin};
    }
    files.push_back({path, std::move(fd), header.data_begin});
    return OkStatus();
  }

  Status AddIndexed(const std::string& dir) {
    const std::string index_path = dir + "/" + kIndexFile;
    MUSTER_ASSIGN_OR_RETURN(const auto weight_map, ReadIndex(index_path));
    std::map<std::string, std::vector<std::string>> tensors_of;
    for (const auto& [tensor, file] : weight_map) tensors_of[file].push_back(tensor);
    for (const auto& [file, tensors] : tensors_of) {
      const std::string path = dir + "/" + file;
      std::error_code error;
      if (!std::filesystem::exists(path, error))
        return NotFound(index_path + " names " + file + ", which is not there; download the " +
                        "model again");
      const std::string& name = file;
      MUSTER_RETURN_IF_ERROR(AddFile(path, [&](const std::string& tensor) {
        const auto it = weight_map.find(tensor);
        return it != weight_map.end() && it->second == name;
      }));
      for (const std::string& tensor : tensors)
        if (!entries.contains(tensor))
          return InvalidArgument(index_path + " says that tensor " + tensor + " lies in " + file +
                                 ", but it does not");
    }
    return OkStatus();
  }
};

SafetensorsModel::SafetensorsModel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SafetensorsModel::SafetensorsModel(SafetensorsModel&&) noexcept = default;
SafetensorsModel& SafetensorsModel::operator=(SafetensorsModel&&) noexcept = default;
SafetensorsModel::~SafetensorsModel() = default;

Result<SafetensorsModel> SafetensorsModel::OpenFile(const std::string& path) {
  auto impl = std::make_unique<Impl>();
  MUSTER_RETURN_IF_ERROR(impl->AddFile(path, [](const std::string&) { return true; }));
  return SafetensorsModel(std::move(impl));
}

Result<SafetensorsModel> SafetensorsModel::Open(const std::string& dir) {
  std::error_code error;
  if (std::filesystem::exists(dir + "/" + kSingleFile, error))
    return OpenFile(dir + "/" + kSingleFile);
  if (!std::filesystem::exists(dir + "/" + kIndexFile, error)) return NoWeights(dir);
  auto impl = std::make_unique<Impl>();
  MUSTER_RETURN_IF_ERROR(impl->AddIndexed(dir));
  return SafetensorsModel(std::move(impl));
}

const TensorSpec* SafetensorsModel::Find(const std::string& name) const {
  const auto it = impl_->entries.find(name);
  return it == impl_->entries.end() ? nullptr : &it->second.spec;
}

std::vector<std::string> SafetensorsModel::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : impl_->entries) names.push_back(name);
  return names;
}

const std::string& SafetensorsModel::FileOf(const std::string& name) const {
  return impl_->files[impl_->entries.at(name).file].path;
}

const std::map<std::string, std::string>& SafetensorsModel::metadata() const {
  return impl_->metadata;
}

// Elements of a tensor that its file holds.
Status SafetensorsModel::Impl::ReadFile(const Entry& entry, std::int64_t begin, std::int64_t count,
                                        float* out) const {
  switch (entry.order) {
    case Order::kInOrder: return ReadInOrder(entry, begin, count, out);
    case Order::kTurned: return ReadTurned(entry, begin, count, out);
    case Order::kMxfp4: return ReadMxfp4(entry, begin, count, out);
  }
  return OkStatus();
}

Status SafetensorsModel::Impl::ReadTurnedPart(const Entry& entry, const Interval& rows,
                                              const Interval& columns, float* out) const {
  const std::int64_t all_rows = entry.spec.shape[0];
  std::vector<float> run(static_cast<std::size_t>(rows.count()));
  for (std::int64_t column = columns.begin; column < columns.end; ++column) {
    MUSTER_RETURN_IF_ERROR(
        ReadInOrder(entry, column * all_rows + rows.begin, rows.count(), run.data()));
    for (std::int64_t row = 0; row < rows.count(); ++row)
      out[row * columns.count() + column - columns.begin] = run[static_cast<std::size_t>(row)];
  }
  return OkStatus();
}

// Whole rows in one, and what is cut of the first and the last row by itself.
Status SafetensorsModel::Impl::ReadTurned(const Entry& entry, std::int64_t begin,
                                          std::int64_t count, float* out) const {
  const std::int64_t width = entry.spec.shape[1];
  for (std::int64_t at = begin; at < begin + count;) {
    const std::int64_t row = at / width, column = at % width, left = begin + count - at;
    const bool is_cut = column > 0 || left < width;
    const Interval rows = {row, row + (is_cut ? 1 : left / width)};
    const Interval columns = {column, is_cut ? std::min(width, column + left) : width};
    MUSTER_RETURN_IF_ERROR(ReadTurnedPart(entry, rows, columns, out));
    out += rows.count() * columns.count();
    at += rows.count() * columns.count();
  }
  return OkStatus();
}

// A row is of whole blocks, so that blocks follow one another as elements do.
Status SafetensorsModel::Impl::ReadMxfp4(const Entry& entry, std::int64_t begin, std::int64_t count,
                                         float* out) const {
  constexpr std::int64_t kPieceBlocks = 1 << 15;
  const File& file = files[entry.file];
  const File& scales_file = files[entry.scales_file];
  const std::int64_t last = (begin + count + kMxfp4Block - 1) / kMxfp4Block;
  for (std::int64_t block = begin / kMxfp4Block; block < last; block += kPieceBlocks) {
    const std::int64_t blocks = std::min(kPieceBlocks, last - block);
    std::string codes(static_cast<std::size_t>(blocks * kMxfp4Bytes), '\0');
    std::string scales(static_cast<std::size_t>(blocks), '\0');
    MUSTER_RETURN_IF_ERROR(ReadExactly(file.fd.get(), codes.data(), blocks * kMxfp4Bytes,
                                       entry.begin + block * kMxfp4Bytes, file.path));
    MUSTER_RETURN_IF_ERROR(ReadExactly(scales_file.fd.get(), scales.data(), blocks,
                                       entry.scales_begin + block, scales_file.path));
    std::vector<float> values(static_cast<std::size_t>(blocks * kMxfp4Block));
    DequantizeMxfp4(codes.data(), scales.data(), blocks, values.data());
    const Interval read = {block * kMxfp4Block, (block + blocks) * kMxfp4Block};
    const Interval wanted = Intersect(read, {begin, begin + count});
    std::copy_n(values.data() + (wanted.begin - read.begin), wanted.count(),
                out + (wanted.begin - begin));
  }
  return OkStatus();
}

Status SafetensorsModel::Impl::ReadInOrder(const Entry& entry, std::int64_t begin,
                                           std::int64_t count, float* out) const {
  const File& file = files[entry.file];
  if (!IsReadableType(entry.spec.type))
    return Unimplemented(file.path + ": tensor " + entry.spec.name + " is of type " +
                         std::string(TensorTypeName(entry.spec.type)) +
                         "; F32, BF16 and F16 are supported");
  const std::int64_t size = TensorTypeSize(entry.spec.type);
  const bool direct = entry.spec.type == TensorType::kF32;
  std::string buffer(direct ? 0 : static_cast<std::size_t>(std::min(count * size, kReadBytes)),
                     '\0');
  std::int64_t offset = entry.begin + begin * size;
  std::int64_t left = count;
  while (left > 0) {
    const std::int64_t elements = direct ? left : std::min(left, kReadBytes / size);
    char* target = direct ? reinterpret_cast<char*>(out) : buffer.data();
    MUSTER_RETURN_IF_ERROR(ReadExactly(file.fd.get(), target, elements * size, offset, file.path));
    if (!direct) {
      Convert(buffer.data(), HalfType(entry.spec.type), out, ElementType::kFloat32, elements,
              /*add=*/false);
    }
    out += elements;
    offset += elements * size;
    left -= elements;
  }
  return OkStatus();
}

Status SafetensorsModel::Impl::FindMean(const Entry& entry, Growth* growth,
                                        const std::function<void()>& on_read) const {
  const std::scoped_lock lock(growth->mutex);
  if (!growth->mean.empty()) return OkStatus();
  const std::int64_t width = entry.spec.shape[1], rows = growth->stored / width;
  const std::int64_t piece = std::max<std::int64_t>(1, kMeanElements / width);
  std::vector<double> sums(static_cast<std::size_t>(width));
  std::vector<float> values(static_cast<std::size_t>(std::min(rows, piece) * width));
  for (std::int64_t row = 0; row < rows; row += piece) {
    const std::int64_t count = std::min(piece, rows - row);
    MUSTER_RETURN_IF_ERROR(ReadFile(entry, row * width, count * width, values.data()));
    for (std::int64_t i = 0; i < count * width; ++i) {
      sums[static_cast<std::size_t>(i % width)] += values[static_cast<std::size_t>(i)];
    }
    if (on_read) on_read();
  }
  growth->mean.reserve(sums.size());
  for (const double sum : sums) {
    growth->mean.push_back(static_cast<float>(sum / static_cast<double>(rows)));
  }
  return OkStatus();
}

// What NAME would be, had it been stored as such; [experts, out, in].
Result<SafetensorsModel::Impl::Entry> SafetensorsModel::Impl::TakeMxfp4(const std::string& name) {
  const auto blocks = entries.find(name + "_blocks"), scales = entries.find(name + "_scales");
  if (blocks == entries.end() || scales == entries.end())
    return NotFound("the model's safetensors hold neither tensor " + name + " nor both " + name +
                    "_blocks and " + name + "_scales; download the model again");
  const TensorSpec& codes = blocks->second.spec;
  const TensorSpec& exponents = scales->second.spec;
  const std::vector<std::int64_t>& shape = exponents.shape;
  const bool fits =
      codes.type == TensorType::kU8 && exponents.type == TensorType::kU8 && shape.size() == 3 &&
      codes.shape == std::vector<std::int64_t>{shape[0], shape[1], shape[2], kMxfp4Bytes};
  if (!fits)
    return InvalidArgument("tensors " + codes.name + " (" +
                           std::string(TensorTypeName(codes.type)) + " " + ShapeOf(codes) +
                           ") and " + exponents.name + " (" +
                           std::string(TensorTypeName(exponents.type)) + " " + ShapeOf(exponents) +
                           ") are not the blocks (U8, [experts, out, in / 32, 16]) and the scales "
                           "(U8, [experts, out, in "
                           "/ 32]) of matrices in MXFP4; download the model again");
  Entry entry{.spec = {name, TensorType::kBF16, {shape[0], shape[1], shape[2] * kMxfp4Block}},
              .file = blocks->second.file,
              .begin = blocks->second.begin,
              .order = Order::kMxfp4,
              .scales_file = scales->second.file,
              .scales_begin = scales->second.begin};
  entries.erase(blocks);
  entries.erase(scales);
  return entry;
}

Status SafetensorsModel::SplitExperts(const std::string& name, std::int64_t experts) {
  const auto found = impl_->entries.find(name);
  Impl::Entry all;
  if (found == impl_->entries.end()) {
    MUSTER_ASSIGN_OR_RETURN(all, impl_->TakeMxfp4(name));
  } else {
    all = found->second;
  }
  std::vector<std::int64_t> shape = all.spec.shape;
  if (shape.size() < 2 || shape.size() > 3 || shape[0] != experts)
    return InvalidArgument("tensor " + name + " has shape " + ShapeOf(all.spec) +
                           ", but config.json calls for a part for each of " +
                           std::to_string(experts) + " experts");
  const std::int64_t part = all.spec.count() / experts;
  shape.erase(shape.begin());
  const bool is_mxfp4 = all.order == Impl::Order::kMxfp4;
  if (shape.size() == 2 && !is_mxfp4) {
    std::swap(shape[0], shape[1]);
    all.order = Impl::Order::kTurned;
  }
  const std::int64_t bytes =
      is_mxfp4 ? part / kMxfp4Block * kMxfp4Bytes : part * TensorTypeSize(all.spec.type);
  impl_->entries.erase(name);
  for (std::int64_t e = 0; e < experts; ++e) {
    Impl::Entry one = all;
    one.spec.name = name + "." + std::to_string(e);
    one.spec.shape = shape;
    one.begin += e * bytes;
    one.scales_begin += e * part / kMxfp4Block;
    if (!impl_->entries.emplace(one.spec.name, one).second)
      return InvalidArgument("the model's safetensors hold both " + name + " and " + one.spec.name);
  }
  return OkStatus();
}

bool SafetensorsModel::LiesInOrder(const std::string& name) const {
  const auto it = impl_->entries.find(name);
  return it != impl_->entries.end() && it->second.order == Impl::Order::kInOrder &&
         !impl_->growths.contains(name);
}

Status SafetensorsModel::GrowRows(const std::string& name, std::int64_t rows) {
  const auto it = impl_->entries.find(name);
  if (it == impl_->entries.end()) return NotFound("the model has no tensor " + name);
  TensorSpec& spec = it->second.spec;
  if (spec.shape.size() != 2 || spec.count() == 0)
    return InvalidArgument("tensor " + name + " is no matrix with rows");
  if (rows < spec.shape[0])
    return InvalidArgument("tensor " + name + " has " + std::to_string(spec.shape[0]) +
                           " rows, more than " + std::to_string(rows));
  if (rows == spec.shape[0]) return OkStatus();
  const auto [growth, is_new] = impl_->growths.try_emplace(name);
  if (is_new) growth->second.stored = spec.count();
  spec.shape[0] = rows;
  return OkStatus();
}

Status SafetensorsModel::PrepareGrownRows(const std::string& name, std::int64_t end,
                                          const std::function<void()>& on_read) const {
  const auto growth = impl_->growths.find(name);
  if (growth == impl_->growths.end() || end <= growth->second.stored) return OkStatus();
  return impl_->FindMean(impl_->entries.at(name), &growth->second, on_read);
}

Status SafetensorsModel::ReadFloats(const std::string& name, std::int64_t begin, std::int64_t count,
                                    float* out) const {
  const auto it = impl_->entries.find(name);
  if (it == impl_->entries.end()) return NotFound("the model has no tensor " + name);
  const Impl::Entry& entry = it->second;
  MUSTER_CHECK(begin >= 0 && count >= 0 && begin <= entry.spec.count() - count,
               "interval outside of tensor " + name);
  const auto growth = impl_->growths.find(name);
  const std::int64_t stored =
      growth == impl_->growths.end() ? entry.spec.count() : growth->second.stored;
  const std::int64_t of_file = std::clamp<std::int64_t>(stored - begin, 0, count);
  MUSTER_RETURN_IF_ERROR(impl_->ReadFile(entry, begin, of_file, out));
  if (of_file == count) return OkStatus();
  MUSTER_RETURN_IF_ERROR(PrepareGrownRows(name, begin + count, {}));
  const std::vector<float>& mean = growth->second.mean;
  for (std::int64_t i = of_file; i < count; ++i) {
    out[i] = mean[static_cast<std::size_t>(begin + i) % mean.size()];
  }
  return OkStatus();
}

Status SafetensorsModel::ReadStored(const std::string& name, std::int64_t begin, std::int64_t count,
                                    void* out) const {
  const auto it = impl_->entries.find(name);
  if (it == impl_->entries.end()) return NotFound("the model has no tensor " + name);
  const Impl::Entry& entry = it->second;
  const Impl::File& file = impl_->files[entry.file];
  MUSTER_CHECK(begin >= 0 && count >= 0 && begin <= entry.spec.count() - count && LiesInOrder(name),
               "interval outside of tensor " + name);
  const std::int64_t size = TensorTypeSize(entry.spec.type);
  return ReadExactly(file.fd.get(), static_cast<char*>(out), count * size,
                     entry.begin + begin * size, file.path);
}

}  // namespace muster
