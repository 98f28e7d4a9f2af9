#include "coordinator/page/metrics_reading.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "coordinator/history/metrics_file.h"

namespace muster {
namespace {

// A larger file than kMetricsBytes is read in so many; a node sends at most 256 KiB of each.
constexpr std::int64_t kPieces = 64;

// Kept alive by the question that is under way.
class MetricsReading : public std::enable_shared_from_this<MetricsReading> {
 public:
  MetricsReading(LogSource source, LogLocation location, std::function<void(StepCurves)> done)
      : source_(std::move(source)), location_(std::move(location)), done_(std::move(done)) {}

  void Start() {
    Ask(-1, [this](const LogBytes& last) {
      size_ = last.next_offset;
      size_ <= kMetricsBytes ? ReadOn(0) : ReadPiece(0);
    });
  }

 private:
  void Ask(std::int64_t offset, std::function<void(const LogBytes&)> then) {
    source_(location_, /*rank=*/0, offset,
            [self = shared_from_this(), then = std::move(then)](const Result<LogBytes>& bytes) {
              if (bytes.ok()) then(*bytes);
            });
  }
  void ReadOn(std::int64_t offset) {
    Ask(offset, [this, offset](const LogBytes& bytes) {
      rest_ += bytes.data;
      rest_.erase(0, AddMetricsPiece(rest_, /*from_begin=*/true, curves_));
      if (bytes.at_end || bytes.next_offset <= offset || bytes.next_offset >= kMetricsBytes)
        return done_(std::move(curves_));
      ReadOn(bytes.next_offset);
    });
  }
  void ReadPiece(std::int64_t piece) {
    const std::int64_t last_begin = size_ - kMetricsBytes / kPieces;
    const std::int64_t offset = last_begin * piece / (kPieces - 1);
    Ask(offset, [this, offset, piece](const LogBytes& bytes) {
      AddMetricsPiece(bytes.data, offset == 0, curves_);
      if (piece + 1 == kPieces) return done_(std::move(curves_));
      ReadPiece(piece + 1);
    });
  }

  const LogSource source_;
  const LogLocation location_;
  const std::function<void(StepCurves)> done_;
  std::int64_t size_ = 0;
  std::string rest_;
  StepCurves curves_;
};

}  // namespace

void ReadMetricsAt(const LogSource& source, LogLocation location,
                   std::function<void(StepCurves)> done) {
  location.metrics = true;
  std::make_shared<MetricsReading>(source, std::move(location), std::move(done))->Start();
}

}  // namespace muster
