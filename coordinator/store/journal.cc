#include "coordinator/store/journal.h"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <random>
#include <utility>

#include "common/base/failpoint.h"

namespace muster {
namespace {

// Retries of readings that a concurrent writer may spoil by removing listed files, and of commits
// of an older coordinator that may come before the first one of this coordinator.
constexpr int kReadAttempts = 100;
constexpr int kBeginAttempts = 1000;
constexpr int kClaimAttempts = 1000;
constexpr std::string_view kTemporary = ".tmp-";

std::string RandomNonce() {
  std::random_device random;
  return std::to_string((std::uint64_t{random()} << 32) | random());
}

// Another computer has removed it.
bool IsGone(int error) { return error == ENOENT || error == ESTALE; }

}  // namespace

Journal::Journal(JournalFiles& files, JournalOptions options)
    : files_(files),
      options_(std::move(options)),
      epochs_(options_.dir + "/epoch"),
      log_(options_.dir + "/log"),
      snapshots_(options_.dir + "/snapshot"),
      claim_{.node = options_.node,
             .pid = options_.pid,
             .address = options_.address,
             .unix_ms = options_.unix_ms,
             .nonce = RandomNonce()},
      state_(options_.kept_events) {}

Result<std::unique_ptr<Journal>> Journal::Open(JournalFiles& files, JournalOptions options) {
  std::unique_ptr<Journal> journal(new Journal(files, std::move(options)));
  MUSTER_RETURN_IF_ERROR(journal->MakeDirectories());
  MUSTER_RETURN_IF_ERROR(journal->ClaimEpoch());
  MUSTER_RETURN_IF_ERROR(journal->Replay());
  MUSTER_RETURN_IF_ERROR(journal->Begin());
  journal->RemoveTemporaries();
  for (const std::string& damage : journal->state_.damaged_snapshots) {
    journal->options_.warn(damage + "; the snapshot before it and the commits since were read");
  }
  return journal;
}

Result<StoreContents> Journal::Read(JournalFiles& files, const std::string& dir) {
  Journal journal(files, {.dir = dir, .kept_events = std::numeric_limits<std::size_t>::max()});
  MUSTER_ASSIGN_OR_RETURN(const std::vector<std::uint64_t> claimed,
                          journal.Numbers(journal.epochs_));
  journal.claim_.epoch = std::numeric_limits<std::uint64_t>::max();  // fenced by none
  MUSTER_RETURN_IF_ERROR(journal.Replay());
  StoreContents contents{.epoch = claimed.empty() ? 0 : claimed.back()};
  // That an epoch begins is no part of the contents.
  MUSTER_RETURN_IF_ERROR(
      ForEachOperation(journal.image().Snapshot(), [&contents](const JournalOperation& each) {
        if (each.kind != JournalOperation::Kind::kBeginEpoch)
          AppendOperation(each, &contents.payload);
      }));
  return contents;
}

Status Journal::Write(JournalFiles& files, const std::string& dir, const StoreContents& contents) {
  constexpr std::uint64_t kNumber = 1;
  Journal journal(files, {.dir = dir});
  MUSTER_RETURN_IF_ERROR(journal.MakeDirectories());
  journal.claim_.epoch = contents.epoch;
  MUSTER_RETURN_IF_ERROR(
      journal.Publish(journal.epochs_, contents.epoch, EncodeClaim(journal.claim_)).status());
  const Frame frame{FrameKind::kSnapshot, contents.epoch, kNumber, contents.payload};
  return journal.Publish(journal.snapshots_, kNumber, EncodeFrame(frame)).status();
}

std::string Journal::Path(const std::string& directory, std::uint64_t number) const {
  return directory + "/" + NumberedName(number);
}

Status Journal::MakeDirectories() {
  for (const std::string& directory : {options_.dir, epochs_, log_, snapshots_}) {
    if (const int error = files_.MakeDirectory(directory); error != 0) {
      return JournalError(error, "create directory " + directory);
    }
  }
  return OkStatus();
}

// Ascending.
Result<std::vector<std::uint64_t>> Journal::Numbers(const std::string& directory) {
  std::vector<std::string> names;
  if (const int error = files_.List(directory, &names); error != 0) {
    return JournalError(error, "list " + directory);
  }
  std::vector<std::uint64_t> numbers;
  for (const std::string& name : names) {
    if (const std::uint64_t number = NumberOfName(name); number != 0) numbers.push_back(number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

// Gives `bytes` this name unless it is taken. The temporary file is in the same directory, because
// some file systems link only within a directory.
Result<Journal::Published> Journal::Publish(const std::string& directory, std::uint64_t number,
                                            const std::string& bytes) {
  const std::string name = Path(directory, number);
  // Never the same twice: one that could not be removed is the same file as what was published.
  const std::string temporary = directory + "/" + std::string(kTemporary) +
                                NumberedName(claim_.epoch) + "-" + claim_.nonce + "-" +
                                std::to_string(number);
  if (const int error = files_.Write(temporary, bytes); error != 0) {
    files_.Remove(temporary);
    return JournalError(error, "write " + temporary);
  }
  const int linked = files_.Link(temporary, name);
  Failpoint("journal.linked");
  bool ours = linked == 0;
  if (!ours) {
    // The answer to a successful link can get lost on the way from a file server, and its
    // repetition fails. The content decides: no two coordinators write the same bytes.
    std::string there;
    const int read = files_.Read(name, &there);
    ours = read == 0 && there == bytes;
    // Nothing to link: a successor has removed the temporary file. Nothing there: a snapshot has
    // already replaced it.
    const bool gone = IsGone(read) && (linked == EEXIST || linked == ENOENT);
    if (!ours && read != 0 && !gone) {
      files_.Remove(temporary);
      return linked == EEXIST ? JournalError(read, "read " + name)
                              : JournalError(linked, "link " + temporary + " to " + name);
    }
  }
  if (ours) {
    if (const int error = files_.SyncDirectory(directory); error != 0) {
      return JournalError(error, "fsync " + directory);
    }
  }
  Failpoint("journal.published");
  files_.Remove(temporary);
  return ours ? Published::kOurs : Published::kTaken;
}

Status Journal::ClaimEpoch() {
  MUSTER_ASSIGN_OR_RETURN(const std::vector<std::uint64_t> claimed, Numbers(epochs_));
  claim_.epoch = claimed.empty() ? 0 : claimed.back();
  for (int attempt = 0; attempt < kClaimAttempts; ++attempt) {
    ++claim_.epoch;
    MUSTER_ASSIGN_OR_RETURN(const Published published,
                            Publish(epochs_, claim_.epoch, EncodeClaim(claim_)));
    if (published == Published::kOurs) {
      Failpoint("journal.claimed");
      return OkStatus();
    }
  }
  return Unavailable("no epoch of " + options_.dir +
                     " could be claimed: too many coordinators start on it; start one");
}

// From the newest whole snapshot on, again and again while listed files vanish: their remover has
// written a newer snapshot.
Status Journal::Replay() {
  Status status;
  for (int attempt = 0; attempt < kReadAttempts; ++attempt) {
    State state(options_.kept_events);
    status = ReadSnapshot(&state);
    if (status.ok()) status = ReadTail(&state);
    if (status.ok()) {
      state_ = std::move(state);
      next_snapshot_ = state_.snapshot + options_.snapshot_commits;
      return OkStatus();
    }
    if (status.code() != StatusCode::kUnavailable) return status;
  }
  return DataLoss(status.message());
}

Status Journal::ReadSnapshot(State* state) {
  MUSTER_ASSIGN_OR_RETURN(const std::vector<std::uint64_t> numbers, Numbers(snapshots_));
  for (auto number = numbers.rbegin(); number != numbers.rend(); ++number) {
    const std::string path = Path(snapshots_, *number);
    std::string bytes;
    const int error = files_.Read(path, &bytes);
    if (IsGone(error)) return Unavailable(path + " is gone");
    if (error != 0) return JournalError(error, "read " + path);
    const Result<Frame> frame = DecodeFrame(bytes, path);
    Status status = frame.status();
    if (frame.ok() && (frame->kind != FrameKind::kSnapshot || frame->number != *number)) {
      status = DataLoss(path + " is not the snapshot that its name says");
    }
    if (status.ok() && frame->epoch > claim_.epoch) return Fenced(*number);
    if (status.ok()) status = state->image.Apply(frame->payload).WithContext(path);
    if (status.ok()) {
      state->number = state->snapshot = *number;
      state->epoch = frame->epoch;
      return OkStatus();
    }
    if (status.code() != StatusCode::kDataLoss) return status;
    state->image = JournalImage(options_.kept_events);
    state->damaged_snapshots.push_back(status.message());
  }
  if (state->damaged_snapshots.empty()) return OkStatus();
  return DataLoss("no snapshot is whole: " + state->damaged_snapshots.front() +
                  "; restore the file from a backup");
}

// Commits after state->number, to the end. kUnavailable: one is missing, though a later one is
// there.
Status Journal::ReadTail(State* state) {
  MUSTER_ASSIGN_OR_RETURN(const std::vector<std::uint64_t> numbers, Numbers(log_));
  const std::uint64_t newest = numbers.empty() ? 0 : numbers.back();
  for (;;) {
    const std::uint64_t number = state->number + 1;
    const std::string path = Path(log_, number);
    std::string bytes;
    const int error = files_.Read(path, &bytes);
    if (IsGone(error) && number > newest) return OkStatus();
    if (IsGone(error)) {
      std::string message = path + " is missing, though commit " + std::to_string(newest) +
                            " is there; restore the file from a backup";
      for (const std::string& damage : state->damaged_snapshots) message += "; " + damage;
      return Unavailable(message);
    }
    if (error != 0) return JournalError(error, "read " + path);
    const Status status = ApplyCommit(bytes, number, state);
    if (status.code() == StatusCode::kDataLoss) {
      return DataLoss(status.message() +
                      "; restore the file from a backup, or remove it and all later ones of " +
                      log_ + " to forget what was decided since");
    }
    MUSTER_RETURN_IF_ERROR(status);
  }
}

Status Journal::ApplyCommit(std::string_view bytes, std::uint64_t number, State* state) {
  const std::string path = Path(log_, number);
  MUSTER_ASSIGN_OR_RETURN(const Frame frame, DecodeFrame(bytes, path));
  if (frame.kind != FrameKind::kCommit || frame.number != number) {
    return DataLoss(path + " is not the commit that its name says");
  }
  if (frame.epoch < state->epoch) {
    return DataLoss(path + " was written in epoch " + std::to_string(frame.epoch) +
                    ", after commits of epoch " + std::to_string(state->epoch));
  }
  if (frame.epoch > claim_.epoch) return Fenced(number);
  MUSTER_RETURN_IF_ERROR(state->image.Apply(frame.payload).WithContext(path));
  state->number = number;
  state->epoch = frame.epoch;
  state->bytes_since += bytes.size();
  return OkStatus();
}

// The first commit. An older coordinator may still commit, so the place may already be taken.
Status Journal::Begin() {
  for (int attempt = 0; attempt < kBeginAttempts; ++attempt) {
    const std::uint64_t number = state_.number + 1;
    const std::string claim = EncodeClaim(claim_);
    std::string payload;
    AppendOperation(JournalOperation{JournalOperation::Kind::kBeginEpoch, number, {}, {}, claim},
                    &payload);
    const std::string bytes = EncodeFrame({FrameKind::kCommit, claim_.epoch, number, payload});
    MUSTER_ASSIGN_OR_RETURN(const Published published, Publish(log_, number, bytes));
    if (published == Published::kOurs) {
      // Was it free because it had been removed? Then there is a snapshot as new as that.
      MUSTER_ASSIGN_OR_RETURN(const std::vector<std::uint64_t> snapshots, Numbers(snapshots_));
      if (snapshots.empty() || snapshots.back() < number) {
        return ApplyCommit(bytes, number, &state_);
      }
      MUSTER_RETURN_IF_ERROR(Replay());
      continue;
    }
    const Status status = ReadTail(&state_);
    if (status.code() == StatusCode::kUnavailable || state_.number < number) {
      MUSTER_RETURN_IF_ERROR(Replay());
    } else {
      MUSTER_RETURN_IF_ERROR(status);
    }
  }
  return Unavailable("the coordinator before this one commits to " + options_.dir +
                     " without pause, so that this one could not take over; end that one");
}

Status Journal::Append(std::string_view payload) {
  const std::uint64_t number = state_.number + 1;
  const std::string bytes = EncodeFrame({FrameKind::kCommit, claim_.epoch, number, payload});
  MUSTER_ASSIGN_OR_RETURN(const Published published, Publish(log_, number, bytes));
  if (published == Published::kTaken) return Fenced(number);
  return ApplyCommit(bytes, number, &state_);
}

Status Journal::CheckFence() {
  std::string bytes;
  const std::uint64_t number = state_.number + 1;
  // What cannot be read just now is left to the next commit.
  return files_.Read(Path(log_, number), &bytes) == 0 ? Fenced(number) : OkStatus();
}

// Why this coordinator cannot make commit `number`: from the file there, or else from the newest
// claim.
Status Journal::Fenced(std::uint64_t number) {
  std::uint64_t epoch = 0;
  std::string bytes;
  const std::string path = Path(log_, number);
  if (files_.Read(path, &bytes) == 0) {
    const Result<Frame> frame = DecodeFrame(bytes, path);
    if (frame.ok()) epoch = frame->epoch;
  } else {
    MUSTER_ASSIGN_OR_RETURN(const std::vector<std::uint64_t> claimed, Numbers(epochs_));
    if (claimed.empty() || claimed.back() <= claim_.epoch) {
      return DataLoss("files of " + options_.dir +
                      " were removed while it was in use; restore it from a backup");
    }
    epoch = claimed.back();
  }
  std::string who = "another coordinator";
  if (files_.Read(Path(epochs_, epoch), &bytes) == 0) {
    if (const Result<EpochClaim> claim = DecodeClaim(bytes); claim.ok()) who = claim->Text();
  }
  return Aborted(who + " has taken over the journal " + options_.dir + " with commit " +
                 std::to_string(number) + "; this coordinator, epoch " +
                 std::to_string(claim_.epoch) +
                 ", decides nothing more. What it has acknowledged is kept; go on there");
}

void Journal::CompactIfDue() {
  const bool due = state_.number >= next_snapshot_ || state_.bytes_since >= options_.snapshot_bytes;
  if (!due) return;
  if (const Status status = Compact(); !status.ok()) {
    options_.warn("no snapshot was written, older commits stay: " + status.message());
  }
  // Also after a failure: the disk is not tried at every commit.
  next_snapshot_ = state_.number + options_.snapshot_commits;
  state_.bytes_since = 0;
}

Status Journal::Compact() {
  const std::string payload = state_.image.Snapshot();
  const std::string bytes =
      EncodeFrame({FrameKind::kSnapshot, claim_.epoch, state_.number, payload});
  MUSTER_ASSIGN_OR_RETURN(const Published published, Publish(snapshots_, state_.number, bytes));
  if (published == Published::kTaken) {
    return AlreadyExists(Path(snapshots_, state_.number) + " is there already");
  }
  Failpoint("journal.snapshot");
  RemoveOld(std::exchange(state_.snapshot, state_.number));
  return OkStatus();
}

// Keeps the snapshot before the newest and what came after it, in case the newest is damaged. Also
// safe after a takeover: what is removed was replaced by a snapshot of this coordinator, and later
// epochs began after its last commit.
void Journal::RemoveOld(std::uint64_t kept_snapshot) {
  if (kept_snapshot == 0) return;
  const auto commits = Numbers(log_);
  const auto snapshots = Numbers(snapshots_);
  if (!commits.ok() || !snapshots.ok()) return;  // the next call removes them
  for (const std::uint64_t number : *commits) {
    if (number > kept_snapshot || state_.image.BeganEpoch(number)) continue;
    files_.Remove(Path(log_, number));
  }
  for (const std::uint64_t number : *snapshots) {
    if (number < kept_snapshot) files_.Remove(Path(snapshots_, number));
  }
}

// Incomplete files of earlier coordinators. A coordinator that still needs such a file is fenced.
void Journal::RemoveTemporaries() {
  for (const std::string& directory : {epochs_, log_, snapshots_}) {
    std::vector<std::string> names;
    if (files_.List(directory, &names) != 0) continue;
    for (const std::string& name : names) {
      if (!name.starts_with(kTemporary)) continue;
      const std::string epoch = name.substr(kTemporary.size(), NumberedName(0).size());
      if (NumberOfName(epoch) < claim_.epoch) files_.Remove(directory + "/" + name);
    }
  }
}

}  // namespace muster
