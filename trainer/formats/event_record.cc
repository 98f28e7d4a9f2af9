#include "trainer/formats/event_record.h"

#include <array>
#include <bit>
#include <cstring>

namespace muster {
namespace {

static_assert(std::endian::native == std::endian::little, "records are little-endian");

constexpr std::array<std::uint32_t, 256> MakeTable() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
    table[i] = crc;
  }
  return table;
}
constexpr std::array<std::uint32_t, 256> kTable = MakeTable();

template <typename T>
void AppendFixed(std::string* out, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out->append(bytes, sizeof bytes);
}

// --- protobuf's wire format ---

enum WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void AppendVarint(std::string* out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}

void AppendKey(std::string* out, int field, WireType type) {
  AppendVarint(out, static_cast<std::uint64_t>(field) << 3 | type);
}

void AppendBytes(std::string* out, int field, std::string_view bytes) {
  AppendKey(out, field, kBytes);
  AppendVarint(out, bytes.size());
  out->append(bytes);
}

void AppendInteger(std::string* out, int field, std::int64_t value) {
  AppendKey(out, field, kVarint);
  AppendVarint(out, static_cast<std::uint64_t>(value));
}

// Fields of Event; comments in the functions below describe Summary and its Value.
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;

std::string EventHead(double wall_time, std::int64_t step) {
  std::string event;
  AppendKey(&event, kWallTime, kFixed64);
  AppendFixed(&event, wall_time);
  if (step != 0) AppendInteger(&event, kStep, step);
  return event;
}

// Summary: value = 1; Summary.Value: tag = 1.
std::string ValueOf(std::string_view tag) {
  std::string value;
  AppendBytes(&value, 1, tag);
  return value;
}

}  // namespace

std::uint32_t Crc32c(std::string_view data) {
  std::uint32_t crc = 0xffffffffu;
  for (const char c : data) crc = kTable[(crc ^ static_cast<unsigned char>(c)) & 0xff] ^ crc >> 8;
  return ~crc;
}

std::uint32_t MaskedCrc32c(std::string_view data) {
  return std::rotr(Crc32c(data), 15) + 0xa282ead8u;
}

std::string EventRecord(std::string_view payload) {
  std::string record;
  AppendFixed(&record, static_cast<std::uint64_t>(payload.size()));
  AppendFixed(&record, MaskedCrc32c(record));
  record.append(payload);
  AppendFixed(&record, MaskedCrc32c(payload));
  return record;
}

std::string FileVersionEvent(double wall_time) {
  std::string event = EventHead(wall_time, 0);
  AppendBytes(&event, kFileVersion, "brain.Event:2");
  return event;
}

std::string SessionStartEvent(double wall_time, std::int64_t step) {
  std::string event = EventHead(wall_time, step);
  std::string session;
  AppendInteger(&session, 1, 1);  // status: START
  AppendBytes(&event, kSessionLog, session);
  return event;
}

std::string ScalarsEvent(double wall_time, std::int64_t step,
                         const std::vector<EventScalar>& scalars) {
  std::string summary;
  for (const EventScalar& scalar : scalars) {
    std::string value = ValueOf(scalar.tag);
    AppendKey(&value, 2, kFixed32);  // simple_value
    AppendFixed(&value, static_cast<float>(scalar.value));
    AppendBytes(&summary, 1, value);
  }
  std::string event = EventHead(wall_time, step);
  AppendBytes(&event, kSummary, summary);
  return event;
}

std::string TextEvent(double wall_time, std::int64_t step, std::string_view tag,
                      std::string_view text) {
  std::string plugin;
  AppendBytes(&plugin, 1, "text");  // SummaryMetadata.PluginData: plugin_name
  std::string metadata;
  AppendBytes(&metadata, 1, plugin);  // SummaryMetadata: plugin_data
  std::string dimension;
  AppendInteger(&dimension, 1, 1);  // TensorShapeProto.Dim: size
  std::string shape;
  AppendBytes(&shape, 2, dimension);  // TensorShapeProto: dim
  std::string tensor;
  AppendInteger(&tensor, 1, 7);    // TensorProto: dtype, DT_STRING
  AppendBytes(&tensor, 2, shape);  // tensor_shape
  AppendBytes(&tensor, 8, text);   // string_val
  std::string value = ValueOf(tag);
  AppendBytes(&value, 8, tensor);
  AppendBytes(&value, 9, metadata);
  std::string summary;
  AppendBytes(&summary, 1, value);
  std::string event = EventHead(wall_time, step);
  AppendBytes(&event, kSummary, summary);
  return event;
}

}  // namespace muster
