#include "coordinator/history/metrics_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "common/base/json.h"
#include "common/base/unique_fd.h"

namespace muster {
namespace {

constexpr std::int64_t kPieceBytes = 16 << 10;

double NumberOf(const nlohmann::json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number() ? found->get<double>()
                                                   : std::numeric_limits<double>::quiet_NaN();
}

std::int64_t IntegerOf(const nlohmann::json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

// Reads what there is, at most `length` bytes.
std::string ReadAt(const UniqueFd& file, std::int64_t offset, std::int64_t length) {
  std::string piece(static_cast<std::size_t>(length), '\0');
  std::size_t have = 0;
  while (have < piece.size()) {
    const ssize_t n = ::pread(file.get(), piece.data() + have, piece.size() - have,
                              offset + static_cast<std::int64_t>(have));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    have += static_cast<std::size_t>(n);
  }
  piece.resize(have);
  return piece;
}

}  // namespace

void AddMetricsLine(std::string_view line, StepCurves& curves) {
  const nlohmann::json parsed = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object() || IntegerOf(parsed, "step") <= 0) return;
  curves.Add({IntegerOf(parsed, "step"),
              IntegerOf(parsed, "generation"),
              {NumberOf(parsed, "loss"), NumberOf(parsed, "step_seconds"),
               std::numeric_limits<double>::quiet_NaN(), NumberOf(parsed, "tokens_per_second")}});
}

std::size_t AddMetricsPiece(std::string_view piece, bool from_begin, StepCurves& curves) {
  std::size_t begin = from_begin ? 0 : piece.find('\n');
  if (begin == std::string_view::npos) return piece.size();
  if (!from_begin) ++begin;
  for (std::size_t end = piece.find('\n', begin); end != std::string_view::npos;
       end = piece.find('\n', begin)) {
    AddMetricsLine(piece.substr(begin, end - begin), curves);
    begin = end + 1;
  }
  return begin;
}

Result<StepCurves> ReadMetricsFile(const std::string& path, std::int64_t max_bytes) {
  // The owner of the directory may have placed a file there that never answers, such as a pipe.
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!file.valid() || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode))
    return NotFound("cannot read " + path);
  const std::int64_t size = info.st_size;
  const bool whole = size <= max_bytes;
  const std::int64_t pieces = whole ? 1 : std::max<std::int64_t>(2, max_bytes / kPieceBytes);
  const std::int64_t length = whole ? size : kPieceBytes;
  StepCurves curves;
  for (std::int64_t i = 0; i < pieces; ++i) {
    const std::int64_t offset = whole ? 0 : (size - length) * i / (pieces - 1);
    AddMetricsPiece(ReadAt(file, offset, length), offset == 0, curves);
  }
  return curves;
}

}  // namespace muster
