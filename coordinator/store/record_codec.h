// Records to text and back: the JSON that the store keeps beside its indexed columns.
//
// The only place that knows this form; docs/store-format.md shows it. Fields are named as in
// coordinator/domain/records.h and enums are words, so people can read a row. A field that has its
// default is not written. Decoding accepts missing and unknown fields (an older or newer version
// wrote them) and fails with kDataLoss, which says what is wrong, on anything else. Numbers that
// are not finite decode as the default, text that is not UTF-8 with replacement characters.
//
// Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>

#include "common/base/result.h"
#include "coordinator/domain/archived_job.h"
#include "coordinator/domain/records.h"

namespace muster {

// What a start reads of an archived job, and where it lies; two of its fields are the record's.
struct ArchiveEntry {
  ArchivedJob job;
  std::string name;
  std::string output_dir;
};

std::string Encode(const JobRecord& record);
std::string Encode(const AttemptRecord& record);
std::string Encode(const CheckpointRecord& record);
std::string Encode(const NodeRecord& record);
std::string Encode(const EventRecord& record);
std::string Encode(const ArchivedJob& job);
std::string Encode(const ArchiveEntry& entry);
std::string Encode(const GoodputUsage& usage);
std::string Encode(const QueuesRecord& queues);
std::string Encode(const UsersRecord& users);
std::string Encode(const SecretRecord& secret);
std::string Encode(const QueueUsageRecord& usage);
std::string Encode(const QueueDayRecord& record);

// "name":"value", as the functions above write a field that is a text.
std::string EncodeField(std::string_view name, std::string_view value);

// T: one of the above.
template <typename T>
Result<T> Decode(std::string_view text);

}  // namespace muster
