#include "trainer/verbs/trial_folder.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "common/base/clock.h"
#include "common/base/files.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr char kFolder[] = ".smoke";
constexpr char kLock[] = "lock";
// Ranks of other nodes hold the lock for the moment in which they ask for it.
constexpr Duration kTrialLockTimeout = std::chrono::milliseconds(500);
constexpr int kLockPollMs = 10;

// Whether nothing is there but what an earlier trial left.
bool HoldsNothingElse(const fs::path& output) {
  std::error_code error;
  const fs::directory_iterator entries(output, error);
  return error || std::all_of(begin(entries), end(entries), [](const fs::directory_entry& entry) {
           return entry.path().filename() == kFolder;
         });
}

}  // namespace

TrialFolder::TrialFolder(const fs::path& output, int rank, int local_rank)
    : output_(output), path_(output / kFolder), rank_(rank), local_rank_(local_rank) {
  std::error_code error;
  const bool is_bare = fs::exists(output_, error) && !fs::exists(path_, error);
  made_output_ = !is_bare && HoldsNothingElse(output_);
}

Result<TrialFolder> TrialFolder::Take(const fs::path& output, int rank, int local_rank) {
  TrialFolder folder(output, rank, local_rank);
  MUSTER_RETURN_IF_ERROR(folder.Make());
  if (rank == 0) MUSTER_RETURN_IF_ERROR(folder.Lock());
  const bool is_mine = rank == 0 || (local_rank == 0 && !folder.IsLocked());
  if (is_mine) MUSTER_RETURN_IF_ERROR(folder.RemoveContents());
  return folder;
}

// An output directory that is not there appears with the folder in it: a rank that finds it without
// takes it for the user's.
Status TrialFolder::Make() const {
  std::error_code error;
  if (!fs::exists(output_, error)) {
    fs::path beside = output_.has_filename() ? output_ : output_.parent_path();
    MUSTER_RETURN_IF_ERROR(MakeDirectories(beside.parent_path().string()));
    beside += kFolder + ("-" + std::to_string(rank_) + "-" + std::to_string(::getpid()));
    const bool is_new =
        fs::create_directory(beside, error) && fs::create_directory(beside / kFolder);
    if (is_new) fs::rename(beside, output_, error);
    if (is_new && error) fs::remove_all(beside, error);  // another rank was first
  }
  return MakeDirectories(path_.string());
}

fs::path TrialFolder::LossesOf(int rank) const {
  return path_ / ("losses-" + std::to_string(rank));
}

// A file system without locks refuses with another error, and there no process is kept out.
Status TrialFolder::Lock() {
  const std::string file = (path_ / kLock).string();
  lock_.reset(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!lock_.valid()) return ErrnoStatus(errno, "create " + file);
  const Deadline deadline = Deadline::After(kTrialLockTimeout);
  while (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return OkStatus();
    if (deadline.Expired())
      return Unavailable(path_.string() + " is being written: another trial of a job with this " +
                         "train.output.dir is running");
    ::poll(nullptr, 0, kLockPollMs);
  }
  return OkStatus();
}

bool TrialFolder::IsLocked() const {
  const UniqueFd file(::open((path_ / kLock).c_str(), O_RDONLY | O_CLOEXEC));
  return file.valid() && ::flock(file.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

// All but the lock, which another trial would not see once it has another name, or none.
Status TrialFolder::RemoveContents() const {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_, error)) {
    if (entry.path().filename() != kLock) fs::remove_all(entry.path(), error);
    if (error) return ErrnoStatus(error.value(), "remove " + entry.path().string());
  }
  return error ? ErrnoStatus(error.value(), "read " + path_.string()) : OkStatus();
}

void TrialFolder::Remove() const {
  std::error_code error;
  const bool is_mine = rank_ == 0 || (local_rank_ == 0 && !fs::exists(LossesOf(0), error));
  if (!is_mine) return;
  fs::remove_all(path_, error);
  if (made_output_) fs::remove(output_, error);  // where nothing else is in it
}

}  // namespace muster
