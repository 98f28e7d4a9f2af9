#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <mutex>

#include "common/base/files.h"
#include "common/base/json.h"
#include "trainer/core/convert.h"
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
  struct File {
    std::string path;
    UniqueFd fd;
    std::int64_t data_begin = 0;
  };
  struct Entry {
    TensorSpec spec;
    std::size_t file = 0;
    std::int64_t begin = 0;  // bytes from the start of the file
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
  MUSTER_CHECK(begin >= 0 && count >= 0 && begin <= entry.spec.count() - count &&
                   !impl_->growths.contains(name),
               "interval outside of tensor " + name);
  const std::int64_t size = TensorTypeSize(entry.spec.type);
  return ReadExactly(file.fd.get(), static_cast<char*>(out), count * size,
                     entry.begin + begin * size, file.path);
}

}  // namespace muster
