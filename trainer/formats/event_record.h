// TensorBoard's event files: what a record of one looks like.
//
// A file is a sequence of records: the payload's length (8 bytes, little-endian), a masked CRC32C
// of those 8 bytes, the payload, and its masked CRC32C (TensorFlow's TFRecord). The payload is an
// Event of tensorflow/core/util/event.proto in protobuf's wire format, written here by hand, since
// the trainer cannot link protobuf. The first event of a file says its version.
//
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

struct EventScalar {
  std::string_view tag;  // "train/loss"; what is before the slash groups the charts
  double value = 0;      // kept as a float; may be infinite or not a number
};

// CRC32C (Castagnoli, reflected polynomial 0x82f63b78), and as records have it: rotated right by 15
// bits, plus a constant, so that a CRC over data with CRCs in it stays good.
std::uint32_t Crc32c(std::string_view data);
std::uint32_t MaskedCrc32c(std::string_view data);

std::string EventRecord(std::string_view payload);

// Events. `wall_time`: seconds since 1970.
std::string FileVersionEvent(double wall_time);
// A run that goes on with `step`: readers drop what older files say of it and of later steps.
std::string SessionStartEvent(double wall_time, std::int64_t step);
std::string ScalarsEvent(double wall_time, std::int64_t step,
                         const std::vector<EventScalar>& scalars);
std::string TextEvent(double wall_time, std::int64_t step, std::string_view tag,
                      std::string_view text);

}  // namespace muster
