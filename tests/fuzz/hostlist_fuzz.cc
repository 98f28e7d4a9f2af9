// Slurm's node lists and counts, from a scheduler's environment.
#include "common/slurm/hostlist.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace muster;
  constexpr std::size_t kMost = 4096;
  const std::string_view text = fuzz::TextOf(data, size);
  const auto hosts = slurm::ExpandHostlist(text, kMost);
  if (hosts.ok()) {
    fuzz::Require(hosts->size() <= kMost, "a list is not longer than asked for");
    fuzz::RequireSame(slurm::ExpandHostlist(slurm::CompressHostlist(*hosts), kMost), *hosts,
                      "the short form of names is the same names");
  }
  const auto counts = slurm::ExpandCounts(text, kMost);
  if (counts.ok()) fuzz::Require(counts->size() <= kMost, "counts are not more than asked for");
  return 0;
}
