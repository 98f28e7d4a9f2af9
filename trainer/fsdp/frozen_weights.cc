#include "trainer/fsdp/frozen_weights.h"

#include <ATen/ATen.h>

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "trainer/fsdp/frozen_layout.h"
#include "trainer/fsdp/load_weights.h"
#include "trainer/fsdp/state_plan.h"
#include "trainer/ops/cpu/nf4.h"
#include "trainer/ops/scalar_type.h"

namespace muster {
namespace {

std::int64_t BytesOf(const UnitTensor& tensor, ElementType type) {
  return ElementCount(tensor.shape) * static_cast<std::int64_t>(ElementSize(type));
}

std::int64_t PackedCount(const std::vector<UnitSpec>& units, const FrozenForm& form) {
  std::int64_t count = 0;
  for (const UnitSpec& unit : units) {
    count += std::count_if(unit.tensors.begin(), unit.tensors.end(),
                           [&](const UnitTensor& tensor) { return IsPacked(tensor, form); });
  }
  return count;
}

// Over all ranks.
Result<std::int64_t> Largest(std::int64_t number, Communicator& world) {
  MUSTER_RETURN_IF_ERROR(world.AllReduce(&number, 1, ElementType::kInt64, ReduceOp::kMax)->Wait());
  return number;
}

// A sum is finite only if every element is, in fp64.
bool IsFinite(const at::Tensor& values) {
  return values.numel() == 0 || std::isfinite(values.sum(at::kDouble).item<double>());
}

Status NotFinite(const std::string& tensor, const std::string& in) {
  return DataLoss("tensor " + tensor + " of the model has a number that is not finite" + in);
}

}  // namespace

FrozenWeights::FrozenWeights(const Placement& placement, Communicator* shard, DeviceOps& ops,
                             const FrozenOptions& options)
    : units_(placement.frozen_units),
      layout_(placement.frozen),
      placed_(placement.frozen_gathered),
      own_shards_(placement.frozen_shards),
      shard_(shard),
      ops_(ops),
      options_(options),
      store_(ops, {.retained = options.retained,
                   .content = Content(),
                   .rank = options.rank,
                   .matrices = PackedCount(units_, options.form),
                   .in_host_memory = placed_.from_host}) {}

Result<std::unique_ptr<FrozenWeights>> FrozenWeights::Create(const Placement& placement,
                                                             Communicator* shard, DeviceOps& ops,
                                                             const FrozenOptions& options) {
  std::unique_ptr<FrozenWeights> frozen(new FrozenWeights(placement, shard, ops, options));
  MUSTER_RETURN_IF_ERROR(frozen->Place());
  return frozen;
}

// Whatever two runs must have in common for their bytes to be equal, but for the rank.
std::uint64_t FrozenWeights::Content() const {
  std::string text = "frozen 2 " + std::to_string(options_.source) + ' ' +
                     std::to_string(static_cast<int>(options_.form.compute)) + LayoutText(layout_);
  if (options_.form.quantization) {
    text += options_.form.quantization->double_quant ? " nf4 twice" : " nf4";
  }
  return XXH3_64bits(text.data(), text.size());
}

Status FrozenWeights::Place() {
  MUSTER_ASSIGN_OR_RETURN(
      gathered_, UnshardedParameters::Create(
                     layout_, placed_, shard_, ops_,
                     {.rank = options_.rank,
                      .slices = options_.slices,
                      .bytes_behind = store_.mark_bytes(),
                      .kept_file = store_.shared_file(),
                      .allocate = [this](std::size_t bytes) { return store_.Allocate(bytes); }}));
  if (const SharedRegion* const region = gathered_->region()) {
    store_.UseShared(*region, static_cast<std::size_t>(placed_.buffer.bytes()));
  }
  shards_ = gathered_->OwnPlaces();
  if (own_shards_.count > 0) {
    MUSTER_ASSIGN_OR_RETURN(memory_,
                            store_.Allocate(static_cast<std::size_t>(own_shards_.bytes())));
    auto* next = static_cast<char*>(memory_.data_ptr());
    for (std::size_t u = 0; u < shards_.size(); ++u) {
      shards_[u] = std::exchange(next, next + layout_.units()[u].shard_count);
    }
  }
  gathered_->SetSources({shards_.begin(), shards_.end()});
  nested_code_ = at::tensor(at::ArrayRef<float>(Nf4NestedCode().data(), Nf4NestedCode().size()))
                     .to(ops_.device());
  for (int u = 0; u < static_cast<int>(units_.size()); ++u) ViewUnitOf(u);
  return OkStatus();
}

void FrozenWeights::Packed::SetOffset(float value) {
  offset = value;
  if (matrix != nullptr) matrix->parts[part].source.offset = value;
}

// Views of what this rank gathers of a unit's bytes, as the model has the tensors.
void FrozenWeights::ViewUnitOf(int unit) {
  const UnitSpec& spec = units_[unit];
  const FlatUnit own = SliceOf(layout_.units()[unit], options_.rank);
  auto next = own.tensors.begin();
  auto* const flat = static_cast<char*>(gathered_->data(unit));
  const auto element = static_cast<std::int64_t>(ElementSize(options_.form.compute));
  FlatUnit plain{.name = spec.name};
  UnitWeights packed;
  for (std::size_t t = 0; t < spec.tensors.size(); ++t) {
    UnitTensor tensor = spec.tensors[t];
    const bool is_own = next != own.tensors.end() && next->spec.name == tensor.name;
    const std::int64_t offset = is_own ? next->offset : 0;
    if (is_own) tensor.joined = next++->spec.joined;
    if (!IsPacked(tensor, options_.form)) {
      if (is_own) plain.tensors.push_back({tensor, offset / element, ElementCount(tensor.shape)});
      continue;
    }
    const PackedLayout layout = PackedLayoutOf(tensor, options_.form);
    Packed each{.unit = unit, .tensor = static_cast<int>(t), .layout = layout};
    if (is_own) {
      each.matrix = tensor.joined ? packed_.back().matrix : std::make_shared<PackedMatrix>();
      each.part = each.matrix->parts.size();
      each.matrix->columns = tensor.shape[1];
      each.matrix->parts.push_back(
          {tensor.shape[0],
           ReadPacked(layout, flat + offset, nested_code_.const_data_ptr<float>(), 0)});
      packed.OfBlock(tensor.block).LinearOf(tensor.role).packed = each.matrix;
    }
    packed_.push_back(std::move(each));
  }
  Overlay(ViewUnit(plain, flat, options_.form.compute, ops_.device()), &packed);
  views_.push_back(std::move(packed));
}

// This rank's part of each tensor of the compute type.
std::vector<ShardArray> FrozenWeights::OwnArrays() const {
  const auto element = static_cast<std::int64_t>(ElementSize(options_.form.compute));
  std::vector<ShardArray> arrays;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    const FlatUnit& bytes = layout_.units()[u];
    for (std::size_t t = 0; t < units_[u].tensors.size(); ++t) {
      const UnitTensor& tensor = units_[u].tensors[t];
      if (IsPacked(tensor, options_.form)) continue;
      const std::int64_t first = bytes.tensors[t].offset;
      const Interval shard = bytes.Shard(options_.rank);
      const Interval part =
          Intersect(shard, {first, first + BytesOf(tensor, options_.form.compute)});
      if (part.empty()) continue;
      ShardArray& array = arrays.emplace_back();
      array.name = bytes.name + "/frozen";
      array.type = options_.form.compute;
      array.count = part.count() / element;
      array.intervals = {{.tensor = tensor.name,
                          .shape = tensor.shape,
                          .begin = (part.begin - first) / element,
                          .count = array.count,
                          .array_offset = 0}};
      array.data = static_cast<char*>(shards_[u]) + (part.begin - shard.begin);
    }
  }
  return arrays;
}

ArrayMemory FrozenWeights::shard_memory() const {
  if (on_host()) return {};
  return {.write = [this](void* to, const void* from, std::size_t bytes) {
    ops_.Copy(to, from, bytes)->WaitOnHost();
  }};
}

// An element type of its own shows what a conversion has made of a number.
Status FrozenWeights::CheckFinite(const ShardArray& array) const {
  const at::Tensor values =
      at::from_blob(array.data, {array.count},
                    at::TensorOptions()
                        .dtype(ScalarTypeOf(array.type))
                        .device(on_host() ? at::Device(at::kCPU) : ops_.device()));
  if (IsFinite(values)) return OkStatus();
  const bool half = array.type == ElementType::kFloat16;
  return NotFinite(array.intervals.front().tensor, half ? " in fp16; train in bf16" : "");
}

// Before memory is filled: files that no rank works in would lie beside the new ones.
Status FrozenWeights::LetOthersGo(Communicator& world) {
  if (options_.retained == nullptr) return OkStatus();
  const std::uint64_t mine = store_.content();
  std::vector<std::uint64_t> contents(static_cast<std::size_t>(world.size()));
  MUSTER_RETURN_IF_ERROR(
      world.AllGather(&mine, contents.data(), sizeof mine, ElementType::kUint8)->Wait());
  options_.retained->KeepOnlyFiles(contents);
  return OkStatus();
}

Status FrozenWeights::Load(const SafetensorsModel* model, Communicator& world,
                           const std::function<void()>& on_read) {
  MUSTER_RETURN_IF_ERROR(LetOthersGo(world));
  const bool have = store_.complete();
  MUSTER_ASSIGN_OR_RETURN(const std::int64_t lacking, Largest(have ? 0 : 1, world));
  kept_ = lacking == 0;
  if (have) {
    const std::vector<float> offsets = store_.offsets();
    for (std::size_t p = 0; p < packed_.size(); ++p) packed_[p].SetOffset(offsets[p]);
  }
  const Status loaded = kept_ ? OkStatus() : LoadMissing(model, world, on_read);
  gathered_->Invalidate();
  MUSTER_RETURN_IF_ERROR(loaded);
  std::vector<float> offsets;
  for (const Packed& packed : packed_) offsets.push_back(packed.offset);
  return store_.Complete(offsets);
}

// Ranks that have theirs help the others to quantise. At its end all are done.
Status FrozenWeights::LoadMissing(const SafetensorsModel* model, Communicator& world,
                                  const std::function<void()>& on_read) {
  std::vector<UnitSpec> plain = units_;
  for (UnitSpec& unit : plain) {
    std::erase_if(unit.tensors,
                  [this](const UnitTensor& tensor) { return IsPacked(tensor, options_.form); });
  }
  const std::vector<ShardArray> arrays =
      store_.complete() ? std::vector<ShardArray>() : OwnArrays();
  MUSTER_RETURN_IF_ERROR(
      LoadIntervalsTogether(model, FlatLayout(plain, 1), arrays, world, shard_memory(), on_read));
  // The type that they are kept in may have no such large numbers.
  Status finite;
  for (const ShardArray& array : arrays) {
    if (finite.ok()) finite = CheckFinite(array);
  }
  for (Packed& packed : packed_) {
    MUSTER_RETURN_IF_ERROR(LoadPacked(model, packed, world, on_read));
  }
  MUSTER_ASSIGN_OR_RETURN(const std::int64_t bad, Largest(finite.ok() ? 0 : 1, world));
  if (bad == 0 || !finite.ok()) return finite;
  return Unavailable(
      "another rank has found a number in the model that is not finite; see its log");
}

// Each rank of a shard group reads and quantises an equal part of the tensor, in whole blocks; all
// exchange them, since double quantisation is of the whole, and keep what is in their shard.
Status FrozenWeights::LoadPacked(const SafetensorsModel* model, Packed& packed, Communicator& world,
                                 const std::function<void()>& on_read) {
  UnitTensor tensor = units_[packed.unit].tensors[packed.tensor];
  tensor.joined = false;
  const std::int64_t count = packed.layout.count;
  const std::int64_t blocks = (Nf4Blocks(count) + layout_.world_size() - 1) / layout_.world_size();
  const std::int64_t share = blocks * kNf4Block;
  const std::int64_t begin = std::min(count, options_.rank * share);
  const at::Tensor own = at::empty({std::min(share, count - begin)}, at::kFloat);
  std::vector<ShardArray> arrays;
  if (own.numel() > 0) {
    arrays.push_back({.name = "quantised/frozen",
                      .type = ElementType::kFloat32,
                      .count = own.numel(),
                      .data = own.mutable_data_ptr(),
                      .intervals = {{tensor.name, tensor.shape, begin, own.numel(), 0}}});
  }
  MUSTER_RETURN_IF_ERROR(LoadIntervalsTogether(
      model, FlatLayout({{.name = "packed", .tensors = {tensor}}}, 1), arrays, world, {}, on_read));
  MUSTER_ASSIGN_OR_RETURN(const Nf4Tensor whole, QuantizeTogether(own, blocks, count));
  if (!store_.complete()) Keep(packed, whole);
  return OkStatus();
}

// `share`: blocks of each rank.
Result<Nf4Tensor> FrozenWeights::QuantizeTogether(const at::Tensor& own, std::int64_t share,
                                                  std::int64_t count) const {
  const std::int64_t code_bytes = share * kNf4Block / 2;
  at::Tensor codes = at::zeros({layout_.world_size() * code_bytes}, at::kByte);
  at::Tensor absmax = at::zeros({layout_.world_size() * share}, at::kFloat);
  if (own.numel() > 0) {
    const Nf4Tensor mine = QuantizeNf4(own, false);
    codes.narrow(0, options_.rank * code_bytes, mine.codes.numel()).copy_(mine.codes);
    absmax.narrow(0, options_.rank * share, mine.absmax.numel()).copy_(mine.absmax);
  }
  if (shard_ != nullptr) {
    const auto exchange = [&](at::Tensor& all, std::int64_t size, ElementType type) {
      auto* const data = static_cast<char*>(all.mutable_data_ptr());
      const std::int64_t bytes = size * static_cast<std::int64_t>(ElementSize(type));
      return shard_->AllGather(data + options_.rank * bytes, data, size, type)->Wait();
    };
    MUSTER_RETURN_IF_ERROR(exchange(codes, code_bytes, ElementType::kUint8));
    MUSTER_RETURN_IF_ERROR(exchange(absmax, share, ElementType::kFloat32));
  }
  return JoinNf4(count, codes.narrow(0, 0, Nf4Bytes(count)), absmax.narrow(0, 0, Nf4Blocks(count)),
                 options_.form.quantization->double_quant);
}

void FrozenWeights::Keep(Packed& packed, const Nf4Tensor& tensor) {
  const FlatUnit& unit = layout_.units()[packed.unit];
  std::vector<std::byte> image(static_cast<std::size_t>(packed.layout.bytes));
  WritePacked(packed.layout, tensor, image.data());
  packed.SetOffset(tensor.offset);
  const std::int64_t first = unit.tensors[packed.tensor].offset;
  const Interval shard = unit.Shard(options_.rank);
  const Interval part = Intersect(shard, {first, first + packed.layout.bytes});
  if (part.empty()) return;
  void* const to = static_cast<char*>(shards_[packed.unit]) + (part.begin - shard.begin);
  const std::byte* const from = image.data() + (part.begin - first);
  const ArrayMemory memory = shard_memory();
  if (memory.write) {
    memory.write(to, from, static_cast<std::size_t>(part.count()));
  } else {
    std::memcpy(to, from, static_cast<std::size_t>(part.count()));
  }
}

std::int64_t FrozenWeights::shard_bytes() const {
  if (gathered_->region() != nullptr) return placed_.buffer.bytes() / layout_.world_size();
  return memory_.defined() ? memory_.numel() : 0;
}

std::int64_t FrozenWeights::parameter_count() const {
  std::int64_t count = 0;
  for (const UnitSpec& unit : units_) {
    for (const UnitTensor& tensor : unit.tensors) count += ElementCount(tensor.shape);
  }
  return count;
}

}  // namespace muster
