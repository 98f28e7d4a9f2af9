#include "coordinator/replay/recording.h"

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
  torn_ = rest.size() < kFrameBytes || rest.size() < kFrameBytes + length;
  if (torn_) return damaged("ends within");
  const std::string_view payload = rest.substr(kFrameBytes, length);
  if (Hash(payload) != Take<std::uint64_t>(rest, sizeof(std::uint32_t)) ||
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
