#include "coordinator/store/archive_pack.h"

#include <zstd.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "common/base/check.h"

namespace muster {
namespace {

// A pack that takes more jobs is written again soon.
constexpr int kLevel = 3;
constexpr int kLevelOfFull = 15;
constexpr std::size_t kFullJobs = 64;
constexpr std::size_t kFullBytes = 256 << 10;         // before it is compressed
constexpr unsigned long long kMaxBytes = 1ULL << 30;  // likewise; of what this program writes

std::string Compressed(std::string_view text, int level) {
  const std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> context(ZSTD_createCCtx(),
                                                                     &ZSTD_freeCCtx);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, level);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 1);
  std::string out(ZSTD_compressBound(text.size()), '\0');
  const std::size_t size =
      ZSTD_compress2(context.get(), out.data(), out.size(), text.data(), text.size());
  MUSTER_CHECK(ZSTD_isError(size) == 0, ZSTD_getErrorName(size));
  out.resize(size);
  return out;
}

Result<std::string> Decompressed(std::string_view value) {
  const unsigned long long bytes = ZSTD_getFrameContentSize(value.data(), value.size());
  if (bytes > kMaxBytes) return DataLoss("archived jobs are not compressed as they should be");
  std::string text(bytes, '\0');
  const std::size_t size = ZSTD_decompress(text.data(), text.size(), value.data(), value.size());
  if (ZSTD_isError(size) != 0)
    return DataLoss(std::string("archived jobs cannot be decompressed: ") +
                    ZSTD_getErrorName(size));
  return text;
}

// Calls `function` for each; stops at its first failure.
template <typename Function>
Status ForEachLine(std::string_view text, const Function& function) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    MUSTER_RETURN_IF_ERROR(function(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return OkStatus();
}

// The codec writes no newline.
template <typename T>
void AppendLine(char kind, const T& record, std::string* lines) {
  *lines += kind + Encode(record) + "\n";
}

std::string LinesOf(const ArchivedRecords& records) {
  std::string lines;
  AppendLine('J', records.job, &lines);
  for (const AttemptRecord& attempt : records.attempts) AppendLine('A', attempt, &lines);
  for (const CheckpointRecord& checkpoint : records.checkpoints)
    AppendLine('C', checkpoint, &lines);
  return lines;
}

template <typename T>
Status DecodeLine(std::string_view text, std::vector<T>* into) {
  MUSTER_ASSIGN_OR_RETURN(T record, Decode<T>(text));
  into->push_back(std::move(record));
  return OkStatus();
}

}  // namespace

bool ArchivePack::full() const {
  std::size_t bytes = 0;
  for (const auto& [job, packed] : jobs_) bytes += packed.records.size();
  return jobs_.size() >= kFullJobs || bytes >= kFullBytes;
}

std::vector<ArchiveEntry> ArchivePack::entries() const {
  std::vector<ArchiveEntry> entries;
  for (const auto& [job, packed] : jobs_) entries.push_back(packed.entry);
  return entries;
}

ArchivePack::Values ArchivePack::Encode() const {
  Values texts;
  for (const auto& [job, packed] : jobs_) {
    texts.records += packed.records;
    texts.index += muster::Encode(packed.entry) + "\n";
  }
  const int level = full() ? kLevelOfFull : kLevel;
  return {Compressed(texts.records, level), Compressed(texts.index, level)};
}

Result<std::vector<ArchiveEntry>> ArchivePack::DecodeIndex(std::string_view index) {
  MUSTER_ASSIGN_OR_RETURN(const std::string text, Decompressed(index));
  std::vector<ArchiveEntry> entries;
  MUSTER_RETURN_IF_ERROR(
      ForEachLine(text, [&entries](std::string_view line) { return DecodeLine(line, &entries); }));
  return entries;
}

Result<ArchivePack> ArchivePack::Decode(const Values& values) {
  MUSTER_ASSIGN_OR_RETURN(const std::vector<ArchiveEntry> entries, DecodeIndex(values.index));
  MUSTER_ASSIGN_OR_RETURN(const std::string records, Decompressed(values.records));
  ArchivePack pack;
  std::string* lines = nullptr;
  std::size_t next = 0;
  MUSTER_RETURN_IF_ERROR(ForEachLine(records, [&](std::string_view line) -> Status {
    if (line.starts_with('J')) {
      if (next == entries.size()) return DataLoss("an archived job is not in its index");
      const ArchiveEntry& entry = entries[next++];
      Packed& packed = pack.jobs_[entry.job.id];
      packed.entry = entry;
      lines = &packed.records;
    }
    if (lines == nullptr) return DataLoss("archived records belong to no job");
    lines->append(line) += '\n';
    return OkStatus();
  }));
  if (next < entries.size()) return DataLoss("there is no record of an archived job");
  return pack;
}

void ArchivePack::Add(const ArchiveEntry& entry, const ArchivedRecords& records) {
  jobs_[entry.job.id] = {entry, LinesOf(records)};
}

void ArchivePack::Replace(const JobId& job, const ArchivedRecords& records) {
  jobs_.at(job).records = LinesOf(records);
}

Result<ArchivedRecords> ArchivePack::Records(const JobId& job) const {
  ArchivedRecords records;
  MUSTER_ASSIGN_OR_RETURN(records.job, Job(job));
  MUSTER_RETURN_IF_ERROR(ForEachLine(jobs_.at(job).records, [&](std::string_view line) -> Status {
    const std::string_view text = line.substr(1);
    if (line.starts_with('A')) return DecodeLine(text, &records.attempts);
    if (line.starts_with('C')) return DecodeLine(text, &records.checkpoints);
    return OkStatus();
  }));
  return records;
}

Result<JobRecord> ArchivePack::Job(const JobId& job) const {
  const std::string_view lines = jobs_.at(job).records;
  return muster::Decode<JobRecord>(lines.substr(1, lines.find('\n') - 1));
}

}  // namespace muster
