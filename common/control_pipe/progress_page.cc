#include "common/control_pipe/progress_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "common/base/version_table.h"

namespace muster {
namespace {

constexpr std::uint32_t kMagic = 0x4d505047;  // "MPPG"

Result<void*> MapPage(int fd, int protection) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return ErrnoStatus(errno, "stat of the progress page");
  if (info.st_size < static_cast<off_t>(kProgressPageBytes))
    return DataLoss("the progress page is too small");
  void* address = ::mmap(nullptr, kProgressPageBytes, protection, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) return ErrnoStatus(errno, "map the progress page");
  const auto* page = static_cast<const ProgressPageLayout*>(address);
  if (page->magic != kMagic || !kProgressPages.contains(static_cast<int>(page->version))) {
    ::munmap(address, kProgressPageBytes);
    return FailedPrecondition("the progress page has another layout version");
  }
  return address;
}

bool InUse(const CollectiveCell& cell) {
  return cell.group[0].load(std::memory_order_acquire) != '\0';
}

std::string NameOf(const CollectiveCell& cell) {
  std::string name;
  for (const std::atomic<char>& letter : cell.group) {
    const char c = letter.load(std::memory_order_acquire);
    if (c == '\0') break;
    name += c;
  }
  return name;
}

}  // namespace

std::string_view TrainPhaseName(TrainPhase phase) {
  static constexpr std::array<std::string_view, kTrainPhaseCount> kNames = {
      "starting", "forming",   "loading",    "data",         "forward",
      "backward", "optimizer", "checkpoint", "exporting",    "done",
      "standby",  "parked",    "evaluating", "reading_rows", "loading_frozen"};
  const auto index = static_cast<std::size_t>(phase);
  return index < kNames.size() ? kNames[index] : "unknown";
}

std::string_view TrainPhaseName(std::optional<TrainPhase> phase) {
  return phase ? TrainPhaseName(*phase) : std::string_view();
}

Result<UniqueFd> CreateProgressPage() {
  UniqueFd fd(::memfd_create("muster-progress", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return ErrnoStatus(errno, "memfd_create");
  if (::ftruncate(fd.get(), kProgressPageBytes) != 0)
    return ErrnoStatus(errno, "size the progress page");
  const std::uint32_t head[2] = {kMagic, kProgressPages.max};
  if (::pwrite(fd.get(), head, sizeof head, 0) != sizeof head)
    return ErrnoStatus(errno, "write the progress page");
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return ErrnoStatus(errno, "seal the progress page");
  return fd;
}

bool IsSealed(int fd) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

Result<std::unique_ptr<ProgressWriter>> ProgressWriter::Map(int fd) {
  MUSTER_ASSIGN_OR_RETURN(void* address, MapPage(fd, PROT_READ | PROT_WRITE));
  return std::unique_ptr<ProgressWriter>(
      new ProgressWriter(static_cast<ProgressPageLayout*>(address)));
}

Result<std::unique_ptr<ProgressWriter>> ProgressWriter::Private() {
  MUSTER_ASSIGN_OR_RETURN(UniqueFd fd, CreateProgressPage());
  return Map(fd.get());
}

ProgressWriter::~ProgressWriter() { ::munmap(page_, kProgressPageBytes); }

void ProgressWriter::Publish() {
  const std::uint64_t sequence = page_->sequence.load(std::memory_order_relaxed);
  page_->sequence.store(sequence + 1, std::memory_order_relaxed);
  // A reader that sees a word of this store sees the odd sequence too.
  const auto words = std::bit_cast<ProgressPageLayout::Words>(values_);
  for (std::size_t i = 0; i < words.size(); ++i)
    page_->values[i].store(words[i], std::memory_order_release);
  page_->sequence.store(sequence + 2, std::memory_order_release);
}

std::string ProgressWriter::FreeName(std::string_view group) const {
  constexpr std::size_t kLongest = std::tuple_size_v<decltype(CollectiveCell::group)> - 1;
  for (std::size_t number = 1;; ++number) {
    const std::string suffix = number == 1 ? "" : "#" + std::to_string(number);
    const std::string name = std::string(group.substr(0, kLongest - suffix.size())) + suffix;
    const bool taken =
        std::any_of(page_->cells.begin(), page_->cells.end(),
                    [&](const CollectiveCell& cell) { return NameOf(cell) == name; });
    if (!taken) return name;
  }
}

CollectiveCell* ProgressWriter::TakeCell(std::string_view group) {
  const std::lock_guard lock(taken_mutex_);
  const auto taken = std::find(taken_.begin(), taken_.end(), false);
  if (taken == taken_.end() || group.empty()) return nullptr;
  *taken = true;
  CollectiveCell& cell = page_->cells[static_cast<std::size_t>(taken - taken_.begin())];
  for (auto* count :
       {&cell.enqueued, &cell.started, &cell.completed, &cell.bytes, &cell.wait_nanoseconds}) {
    count->store(0, std::memory_order_relaxed);
  }
  const std::string name = FreeName(group);
  // The first letter last: a reader takes a cell that has one for whole.
  for (std::size_t i = cell.group.size(); i-- > 0;)
    cell.group[i].store(i < name.size() ? name[i] : '\0', std::memory_order_release);
  return &cell;
}

void ProgressWriter::ReturnCell(CollectiveCell* cell) {
  const std::lock_guard lock(taken_mutex_);
  RetireCell(*cell);
  taken_[static_cast<std::size_t>(cell - page_->cells.data())] = false;
}

std::uint64_t ProgressWriter::wait_nanoseconds() const {
  std::uint64_t sum = 0;
  for (const CollectiveCell& cell : page_->cells) {
    if (InUse(cell)) sum += cell.wait_nanoseconds.load(std::memory_order_relaxed);
  }
  return sum;
}

std::shared_ptr<CollectiveCell> ClaimCell(const std::shared_ptr<ProgressWriter>& page,
                                          std::string_view group) {
  CollectiveCell* const cell = page ? page->TakeCell(group) : nullptr;
  if (cell == nullptr) return std::make_shared<CollectiveCell>();
  return {cell, [page](CollectiveCell* taken) { page->ReturnCell(taken); }};
}

void RetireCell(CollectiveCell& cell) { cell.group[0].store('\0', std::memory_order_release); }

Result<std::unique_ptr<ProgressReader>> ProgressReader::Map(int fd) {
  MUSTER_ASSIGN_OR_RETURN(void* address, MapPage(fd, PROT_READ));
  return std::unique_ptr<ProgressReader>(
      new ProgressReader(static_cast<const ProgressPageLayout*>(address)));
}

ProgressReader::~ProgressReader() {
  ::munmap(const_cast<ProgressPageLayout*>(page_), kProgressPageBytes);
}

bool ProgressReader::Read(ProgressValues* values) const {
  for (int attempt = 0; attempt < 100; ++attempt) {
    const std::uint64_t before = page_->sequence.load(std::memory_order_acquire);
    if (before % 2 != 0) continue;
    ProgressPageLayout::Words words;
    for (std::size_t i = 0; i < words.size(); ++i)
      words[i] = page_->values[i].load(std::memory_order_acquire);
    if (page_->sequence.load(std::memory_order_relaxed) != before) continue;
    *values = std::bit_cast<ProgressValues>(words);
    return true;
  }
  return false;
}

std::uint64_t ProgressReader::stores() const {
  return page_->sequence.load(std::memory_order_relaxed);
}

std::vector<CollectiveCounts> ProgressReader::ReadCollectives() const {
  std::vector<CollectiveCounts> all;
  for (const CollectiveCell& cell : page_->cells) {
    if (!InUse(cell)) continue;
    // Completed before started before enqueued, so that no reading shows more done than begun.
    CollectiveCounts counts;
    counts.completed = cell.completed.load(std::memory_order_acquire);
    counts.started = cell.started.load(std::memory_order_acquire);
    counts.enqueued = cell.enqueued.load(std::memory_order_acquire);
    counts.bytes = cell.bytes.load(std::memory_order_relaxed);
    counts.wait_nanoseconds = cell.wait_nanoseconds.load(std::memory_order_relaxed);
    counts.group = NameOf(cell);
    all.push_back(std::move(counts));
  }
  return all;
}

}  // namespace muster
