#include "common/slurm/job_ref.h"

#include <charconv>

namespace muster::slurm {
namespace {

std::optional<std::uint64_t> WholeNumber(std::string_view text) {
  std::uint64_t number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

std::optional<JobRef> JobRef::Parse(std::string_view text) {
  const std::size_t underscore = text.find('_');
  const auto id = WholeNumber(text.substr(0, underscore));
  if (!id || *id == 0) return std::nullopt;
  if (underscore == std::string_view::npos) return JobRef(*id);
  const auto task = WholeNumber(text.substr(underscore + 1));
  if (!task) return std::nullopt;
  return JobRef(ArrayTask{*id, *task});
}

}  // namespace muster::slurm
