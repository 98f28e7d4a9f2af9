#include "coordinator/store/store_contents.h"

#include <filesystem>
#include <optional>
#include <utility>

#include "common/base/files.h"
#include "coordinator/store/journal_format.h"
#include "coordinator/store/journal_image.h"

namespace muster {
namespace {

// A backup's frame has it where a journal's has that of a commit.
constexpr std::uint64_t kNumber = 1;
constexpr std::int64_t kMaxBackupBytes = std::int64_t{64} << 30;

}  // namespace

Result<StoreContents> InOrder(StoreContents contents, std::uint64_t kept) {
  JournalImage image(kept);
  MUSTER_RETURN_IF_ERROR(image.Apply(contents.payload));
  contents.payload = image.Snapshot();
  return contents;
}

Result<std::vector<StoreOperation>> OperationsOf(const StoreContents& contents) {
  std::vector<StoreOperation> operations;
  Status status;
  MUSTER_RETURN_IF_ERROR(ForEachOperation(contents.payload, [&](const JournalOperation& each) {
    if (!status.ok()) return;
    Result<std::optional<StoreOperation>> operation = DecodeOperation(each);
    if (!operation.ok())
      status = operation.status().WithContext("record '" + std::string(each.key) + "' '" +
                                              std::string(each.name) + "' " +
                                              std::to_string(each.number));
    else if (*operation)
      operations.push_back(**std::move(operation));
  }));
  MUSTER_RETURN_IF_ERROR(status);
  return operations;
}

Result<StoreContents> ReadBackup(const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path, kMaxBackupBytes));
  MUSTER_ASSIGN_OR_RETURN(const Frame frame, DecodeFrame(bytes, path));
  if (frame.kind != FrameKind::kSnapshot)
    return InvalidArgument(path + " is a commit of a journal, no backup; give the journal itself");
  return StoreContents{frame.epoch, std::string(frame.payload)};
}

Status WriteBackup(const std::string& path, const StoreContents& contents) {
  std::error_code error;
  if (std::filesystem::exists(std::filesystem::symlink_status(path, error)))
    return AlreadyExists(path + " is there already; name another file");
  return WriteFileAtomically(
      path, EncodeFrame({FrameKind::kSnapshot, contents.epoch, kNumber, contents.payload}), 0600);
}

}  // namespace muster
