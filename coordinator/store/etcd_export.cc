#include "coordinator/store/etcd_export.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/unique_fd.h"
#include "coordinator/store/etcd_reader.h"
#include "coordinator/store/journal_format.h"

namespace muster {
namespace {

constexpr char kExportedFolder[] = "exported/";
constexpr char kSuffix[] = ".jsonl";
constexpr Duration kAnswer = std::chrono::seconds(2);
constexpr std::uint64_t kLinesAtOnce = 10000;
constexpr std::int64_t kMaxExportBytes = 1 << 30;  // a file and what is added to it at once

std::uint64_t SeqOf(std::string_view line) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return 0;
  const auto seq = json.find("seq");
  return seq != json.end() && seq->is_number_unsigned() ? seq->get<std::uint64_t>() : 0;
}

// The newest file of the kind; empty: there is none. Their names are in order.
Result<std::string> NewestFile(const std::string& dir, const std::string& kind) {
  std::string newest;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(dir, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kind + "-") && name.ends_with(kSuffix))
      newest = std::max(newest, entry.path().string());
  }
  if (error) return Unavailable("cannot list " + dir + ": " + error.message());
  return newest;
}

// Coordinators of one machine have folders of their own, so the host's name is not enough.
Result<std::string> LoadOrMakeName(const EtcdExportOptions& options) {
  const std::string path = options.dir + "/name";
  if (const auto known = ReadFile(path, 256); known.ok() && !known->empty()) return *known;
  MUSTER_ASSIGN_OR_RETURN(const std::string random, ReadFile("/proc/sys/kernel/random/uuid", 64));
  const std::string name = options.host + "-" + random.substr(0, 8);
  MUSTER_RETURN_IF_ERROR(WriteFileAtomically(path, name, 0600));
  return name;
}

// "AUDIT EVENTS".
EtcdExported ExportedIn(std::string_view text) {
  EtcdExported exported;
  const auto audit = std::from_chars(text.data(), text.data() + text.size(), exported.audit);
  if (audit.ptr < text.data() + text.size())
    std::from_chars(audit.ptr + 1, text.data() + text.size(), exported.events);
  return exported;
}

// The `copies`-th of the highest.
std::uint64_t HeldBy(std::vector<std::uint64_t> positions, std::size_t copies) {
  const std::size_t wanted = std::min(copies, positions.size());
  if (wanted == 0) return 0;
  std::ranges::nth_element(positions, positions.begin() + static_cast<std::ptrdiff_t>(wanted) - 1,
                           std::greater<>());
  return positions[wanted - 1];
}

}  // namespace

EtcdExport::EtcdExport(EtcdExportOptions options, std::unique_ptr<EtcdClient> client,
                       std::string name)
    : options_(std::move(options)),
      keys_(options_.prefix),
      client_(std::move(client)),
      name_(std::move(name)) {}

Result<std::unique_ptr<EtcdExport>> EtcdExport::Start(EtcdExportOptions options) {
  MUSTER_RETURN_IF_ERROR(MakeDirectories(options.dir, 0700));
  MUSTER_ASSIGN_OR_RETURN(std::unique_ptr<EtcdClient> client,
                          EtcdClient::Open(options.access, kEtcdAnswer));
  MUSTER_ASSIGN_OR_RETURN(std::string name, LoadOrMakeName(options));
  std::unique_ptr<EtcdExport> exporting(
      new EtcdExport(std::move(options), std::move(client), std::move(name)));
  for (Kind* kind : {&exporting->audit_, &exporting->events_})
    MUSTER_RETURN_IF_ERROR(exporting->Open(kind));
  exporting->thread_ = std::thread([&self = *exporting] { self.Run(); });
  return exporting;
}

EtcdExport::~EtcdExport() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_changed_.notify_all();
  client_->Cancel();
  if (thread_.joinable()) thread_.join();
}

// Goes on after the last whole line.
Status EtcdExport::Open(Kind* kind) const {
  MUSTER_ASSIGN_OR_RETURN(kind->path, NewestFile(options_.dir, kind->name));
  if (kind->path.empty()) return OkStatus();
  MUSTER_ASSIGN_OR_RETURN(const std::string text, ReadFile(kind->path, kMaxExportBytes));
  const std::string_view whole = std::string_view(text).substr(0, text.rfind('\n') + 1);
  kind->bytes = whole.size();
  if (whole.size() < text.size() &&
      ::truncate(kind->path.c_str(), static_cast<off_t>(whole.size())) != 0)
    return ErrnoStatus(errno, "cut " + kind->path);
  if (whole.empty()) {  // it was begun and got no line; the one before has the position
    if (::unlink(kind->path.c_str()) != 0) return ErrnoStatus(errno, "remove " + kind->path);
    return Open(kind);
  }
  const std::size_t begin = whole.rfind('\n', whole.size() - 2) + 1;  // npos + 1: the first line
  kind->exported = SeqOf(whole.substr(begin));
  if (kind->exported == 0)
    return DataLoss(kind->path + " does not end with a line that this program wrote; move it away");
  return OkStatus();
}

Status EtcdExport::Append(Kind* kind, std::uint64_t seq, const std::string& lines,
                          std::uint64_t last) const {
  if (kind->path.empty() || kind->bytes >= options_.file_bytes) {
    kind->path = options_.dir + "/" + kind->name + "-" + NumberedName(seq) + kSuffix;
    kind->bytes = 0;
  }
  const UniqueFd file(
      ::open(kind->path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.valid()) return ErrnoStatus(errno, "open " + kind->path);
  // What a write that failed half way left after the last whole line.
  if (::ftruncate(file.get(), static_cast<off_t>(kind->bytes)) != 0)
    return ErrnoStatus(errno, "cut " + kind->path);
  for (std::size_t done = 0; done < lines.size();) {
    const ssize_t n = ::write(file.get(), lines.data() + done, lines.size() - done);
    if (n < 0 && errno != EINTR) return ErrnoStatus(errno, "write " + kind->path);
    done += static_cast<std::size_t>(std::max<ssize_t>(n, 0));
  }
  if (::fsync(file.get()) != 0) return ErrnoStatus(errno, "sync " + kind->path);
  if (kind->bytes == 0) MUSTER_RETURN_IF_ERROR(SyncDirectory(options_.dir));
  kind->bytes += lines.size();
  kind->exported = last;
  return OkStatus();
}

Status EtcdExport::Copy(Kind* kind) {
  const std::string folder = kind->name + "/";
  if (kind->restored) return CheckNotBehind(kind);
  for (bool more = true; more;) {
    std::string lines;
    std::uint64_t first = 0, last = kind->exported, count = 0;
    const std::uint64_t begin = last + 1;
    const Status read = EtcdReader(*client_).Read(
        keys_.Numbered(folder, begin), keys_.Numbered(folder, begin + kLinesAtOnce),
        [&](const EtcdEntry& entry) -> Status {
          last = SeqOf(entry.value);
          if (last == 0) return DataLoss(entry.key + " is no line of JSON with a seq");
          if (first == 0) first = last;
          lines += entry.value + "\n";
          ++count;
          return OkStatus();
        });
    if (!read.ok()) return read;
    if (count == 0) {
      MUSTER_ASSIGN_OR_RETURN(const auto newer,
                              EtcdReader(*client_).NumbersFrom(keys_, folder, begin));
      if (newer.first == 0) return CheckNotBehind(kind);
      kind->exported = newer.first - 1;  // those between were gone before they were exported
      continue;
    }
    MUSTER_RETURN_IF_ERROR(Append(kind, first, lines, last));
    more = count == kLinesAtOnce;
  }
  return OkStatus();
}

// A store that was restored has other lines under the numbers that follow.
Status EtcdExport::CheckNotBehind(Kind* kind) {
  MUSTER_ASSIGN_OR_RETURN(const auto all,
                          EtcdReader(*client_).NumbersFrom(keys_, kind->name + "/", 0));
  kind->restored = kind->restored || (all.first != 0 && all.last < kind->exported);
  if (!kind->restored) return OkStatus();
  return FailedPrecondition("etcd was restored to " + kind->name + " " + std::to_string(all.last) +
                            ", and " + kind->path + " ends with " + std::to_string(kind->exported) +
                            "; move the folder away and start the coordinator again");
}

// The first note is before the first copy: from then on nothing is removed that is missing here.
Status EtcdExport::CopyAll() {
  MUSTER_RETURN_IF_ERROR(Note());
  const Status audit = Copy(&audit_);
  const Status events = Copy(&events_);
  MUSTER_RETURN_IF_ERROR(Note());
  return audit.ok() ? events : audit;
}

Status EtcdExport::Note() {
  const auto position = [](const Kind& kind) {
    return std::to_string(kind.restored ? 0 : kind.exported);
  };
  const std::string now = position(audit_) + " " + position(events_);
  if (now == noted_) return OkStatus();
  etcdserverpb::TxnRequest request;
  *request.add_success() = EtcdPut(keys_.Named(kExportedFolder, name_), now);
  MUSTER_RETURN_IF_ERROR(client_->Transact(request, kAnswer).status());
  noted_ = now;
  return OkStatus();
}

void EtcdExport::Run() {
  ::pthread_setname_np(::pthread_self(), "etcd export");
  for (;;) {
    const Status copied = CopyAll();
    std::unique_lock lock(mutex_);
    if (stopping_) return;
    if (!copied.ok() && copied.message() != warned_)
      options_.warn("audit trail and events are not exported to " + options_.dir +
                    ", and stay in etcd until they are: " + copied.message());
    warned_ = copied.ok() ? "" : copied.message();
    stop_changed_.wait_for(lock, options_.interval, [this] { return stopping_; });
    if (stopping_) return;
  }
}

Result<EtcdExported> ReadExported(EtcdClient& client, const EtcdKeys& keys, std::size_t copies) {
  std::vector<std::uint64_t> audit, events;
  const std::string folder = keys.Under(kExportedFolder);
  MUSTER_RETURN_IF_ERROR(
      EtcdReader(client).Read(folder, EtcdPrefixEnd(folder), [&](const EtcdEntry& entry) -> Status {
        const EtcdExported exported = ExportedIn(entry.value);
        audit.push_back(exported.audit);
        events.push_back(exported.events);
        return OkStatus();
      }));
  return EtcdExported{HeldBy(std::move(audit), copies), HeldBy(std::move(events), copies)};
}

}  // namespace muster
