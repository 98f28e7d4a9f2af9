#include "common/control_pipe/training_figures.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>

#include "common/base/version_table.h"

namespace muster {
namespace {

constexpr std::uint32_t kMagic = 0x4d504647;  // "MPFG"
constexpr int kReadAttempts = 100;

using Words = std::array<std::uint64_t, sizeof(TrainingFigures) / sizeof(std::uint64_t)>;

template <std::size_t kCount>
std::string_view NameAt(const std::array<std::string_view, kCount>& names, std::size_t index) {
  return index < names.size() ? names[index] : "unknown";
}

Result<void*> MapPage(int fd, int protection) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return ErrnoStatus(errno, "stat of the progress page");
  if (info.st_size < static_cast<off_t>(kProgressPageBytes))
    return DataLoss("the progress page is too small for figures");
  void* address = ::mmap(nullptr, kProgressPageBytes, protection, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) return ErrnoStatus(errno, "map the progress page's figures");
  return address;
}

}  // namespace

struct alignas(64) FiguresLayout {
  std::atomic<std::uint32_t> magic;
  std::atomic<std::uint32_t> version;
  std::atomic<std::uint64_t> sequence;  // odd while a store is under way
  std::array<std::atomic<std::uint64_t>, std::tuple_size_v<Words>> values;
};
static_assert(kFiguresOffset + sizeof(FiguresLayout) <= kProgressPageBytes);
static_assert(sizeof(Words) == sizeof(TrainingFigures));

namespace {

FiguresLayout* LayoutIn(void* page) {
  return reinterpret_cast<FiguresLayout*>(static_cast<char*>(page) + kFiguresOffset);
}

}  // namespace

std::string_view StepPartName(StepPart part) {
  static constexpr std::array<std::string_view, kStepPartCount> kNames = {
      "data", "forward", "backward", "optimizer", "comm_wait", "checkpoint"};
  return NameAt(kNames, static_cast<std::size_t>(part));
}

std::string_view RankTimeName(RankTime time) {
  static constexpr std::array<std::string_view, kRankTimeCount> kNames = {"step", "recompute",
                                                                          "checkpoint", "wait"};
  return NameAt(kNames, static_cast<std::size_t>(time));
}

std::string_view CollectiveOpName(CollectiveOp op) {
  static constexpr std::array<std::string_view, kCollectiveOpCount> kNames = {
      "all_gather", "reduce_scatter", "all_reduce", "broadcast", "shift", "barrier", "all_to_all"};
  return NameAt(kNames, static_cast<std::size_t>(op));
}

std::string_view CollectiveErrorName(CollectiveError error) {
  static constexpr std::array<std::string_view, kCollectiveErrorCount> kNames = {
      "peer_lost", "timeout", "internal"};
  return NameAt(kNames, static_cast<std::size_t>(error));
}

void SaveSeconds::Observe(double seconds) {
  const auto bucket =
      std::lower_bound(kSaveSecondsBounds.begin(), kSaveSecondsBounds.end(), seconds);
  ++buckets[static_cast<std::size_t>(bucket - kSaveSecondsBounds.begin())];
  sum += seconds;
}

std::array<std::uint64_t, kCollectiveOpCount> TrainingFigures::collectives() const {
  std::array<std::uint64_t, kCollectiveOpCount> issued = {};
  std::ranges::copy(first_collectives, issued.begin());
  std::ranges::copy(more_collectives, issued.begin() + first_collectives.size());
  return issued;
}

void TrainingFigures::SetCollectives(const std::array<std::uint64_t, kCollectiveOpCount>& issued) {
  const auto more = issued.begin() + first_collectives.size();
  std::copy(issued.begin(), more, first_collectives.begin());
  std::copy(more, issued.end(), more_collectives.begin());
}

Result<std::unique_ptr<FiguresWriter>> FiguresWriter::Map(int fd) {
  MUSTER_ASSIGN_OR_RETURN(void* page, MapPage(fd, PROT_READ | PROT_WRITE));
  std::unique_ptr<FiguresWriter> writer(new FiguresWriter(page));
  writer->Publish({});
  FiguresLayout* const layout = writer->layout();
  layout->version.store(kTrainingFigures.max, std::memory_order_relaxed);
  layout->magic.store(kMagic, std::memory_order_release);
  return writer;
}

FiguresWriter::~FiguresWriter() { ::munmap(page_, kProgressPageBytes); }

FiguresLayout* FiguresWriter::layout() const { return LayoutIn(page_); }

void FiguresWriter::Publish(const TrainingFigures& figures) {
  FiguresLayout& page = *layout();
  const std::uint64_t sequence = page.sequence.load(std::memory_order_relaxed);
  page.sequence.store(sequence + 1, std::memory_order_relaxed);
  // A reader that sees a word of this store sees the odd sequence too.
  const auto words = std::bit_cast<Words>(figures);
  for (std::size_t i = 0; i < words.size(); ++i)
    page.values[i].store(words[i], std::memory_order_release);
  page.sequence.store(sequence + 2, std::memory_order_release);
}

Result<std::unique_ptr<FiguresReader>> FiguresReader::Map(int fd) {
  MUSTER_ASSIGN_OR_RETURN(void* page, MapPage(fd, PROT_READ));
  return std::unique_ptr<FiguresReader>(new FiguresReader(page));
}

FiguresReader::~FiguresReader() { ::munmap(page_, kProgressPageBytes); }

const FiguresLayout* FiguresReader::layout() const { return LayoutIn(page_); }

bool FiguresReader::Read(TrainingFigures* figures) const {
  const FiguresLayout& page = *layout();
  if (page.magic.load(std::memory_order_acquire) != kMagic) return false;
  // What an older one does not write is zero, as the page was made.
  const std::uint32_t version = page.version.load(std::memory_order_relaxed);
  if (!kTrainingFigures.contains(static_cast<int>(version))) return false;
  for (int attempt = 0; attempt < kReadAttempts; ++attempt) {
    const std::uint64_t before = page.sequence.load(std::memory_order_acquire);
    if (before % 2 != 0) continue;
    Words words;
    for (std::size_t i = 0; i < words.size(); ++i)
      words[i] = page.values[i].load(std::memory_order_acquire);
    if (page.sequence.load(std::memory_order_relaxed) != before) continue;
    *figures = std::bit_cast<TrainingFigures>(words);
    return true;
  }
  return false;
}

}  // namespace muster
