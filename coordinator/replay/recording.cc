#include "coordinator/replay/recording.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <xxhash.h>

#include <bit>
#include <cstring>
#include <utility>

namespace muster {
namespace {

static_assert(std::endian::native == std::endian::little, "recordings are little-endian");

constexpr std::string_view kMagic = "MUSTERSP";
constexpr std::uint32_t kRecordingVersion = 1;
constexpr std::size_t kHeaderBytes = kMagic.size() + sizeof(kRecordingVersion);
constexpr std::size_t kFrameBytes = sizeof(std::uint32_t) + sizeof(std::uint64_t);

template <typename T>
void Put(std::string* bytes, T value) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename T>
T Take(std::string_view bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

std::uint64_t Hash(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

// Whether a whole pass begins there, so that its length alone is damaged.
bool HasWholePass(std::string_view frame) {
  if (frame.size() < kFrameBytes) return false;
  const std::string_view payload = frame.substr(kFrameBytes);
  google::protobuf::io::CodedInputStream fields(
      reinterpret_cast<const std::uint8_t*>(payload.data()), static_cast<int>(payload.size()));
  for (int i = 0; i < v1::SchedulePass::descriptor()->field_count(); ++i) {
    const std::uint32_t tag = fields.ReadTag();
    if (tag == 0 || !google::protobuf::internal::WireFormatLite::SkipField(&fields, tag))
      return false;
    const auto end = static_cast<std::size_t>(fields.CurrentPosition());
    if (Hash(payload.substr(0, end)) == Take<std::uint64_t>(frame, sizeof(std::uint32_t)))
      return true;
  }
  return false;
}

}  // namespace

std::string RecordingHeader() {
  std::string bytes(kMagic);
  Put(&bytes, kRecordingVersion);
  return bytes;
}

std::string RecordingFrame(const v1::SchedulePass& pass) {
  const std::string payload = pass.SerializeAsString();
  std::string bytes;
  bytes.reserve(kFrameBytes + payload.size());
  Put(&bytes, static_cast<std::uint32_t>(payload.size()));
  Put(&bytes, Hash(payload));
  return bytes += payload;
}

std::int64_t RecordingFrameBytes(const v1::SchedulePass& pass) {
  return static_cast<std::int64_t>(kFrameBytes + pass.ByteSizeLong());
}

RecordingReader::RecordingReader(std::string_view bytes, std::string name)
    : bytes_(bytes), name_(std::move(name)) {}

Status RecordingReader::ReadHeader() {
  if (!bytes_.starts_with(kMagic) || bytes_.size() < kHeaderBytes)
    return InvalidArgument(name_ +
                           " is no recording of schedules; 'muster schedule export' and "
                           "'muster-coordinator --record-schedules' write them");
  if (const auto version = Take<std::uint32_t>(bytes_, kMagic.size()); version != kRecordingVersion)
    return InvalidArgument(name_ + " has version " + std::to_string(version) +
                           " of recordings, and this program reads version " +
                           std::to_string(kRecordingVersion));
  at_ = kHeaderBytes;
  return OkStatus();
}

Result<bool> RecordingReader::Next(v1::SchedulePass* pass) {
  if (at_ == 0) MUSTER_RETURN_IF_ERROR(ReadHeader());
  const std::string_view rest = bytes_.substr(at_);
  if (rest.empty()) return false;
  const auto damaged = [&](const std::string& what) {
    return DataLoss(name_ + " " + what + " pass " + std::to_string(passes_ + 1) + ", at byte " +
                    std::to_string(at_));
  };
  const std::size_t length = rest.size() < kFrameBytes ? 0 : Take<std::uint32_t>(rest, 0);
  const bool is_cut = rest.size() < kFrameBytes || rest.size() < kFrameBytes + length;
  torn_ = is_cut && !HasWholePass(rest);
  if (torn_) return damaged("ends within");
  const std::string_view payload = rest.substr(kFrameBytes, length);
  if (is_cut || Hash(payload) != Take<std::uint64_t>(rest, sizeof(std::uint32_t)) ||
      !pass->ParseFromArray(payload.data(), static_cast<int>(payload.size())))
    return damaged("is damaged in");
  last_ = at_;
  at_ += kFrameBytes + length;
  ++passes_;
  return true;
}

std::string RecordingReader::Place() const {
  return name_ + ", pass " + std::to_string(passes_) + ", at byte " + std::to_string(last_);
}

}  // namespace muster
