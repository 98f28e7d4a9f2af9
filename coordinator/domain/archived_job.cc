#include "coordinator/domain/archived_job.h"

#include <xxhash.h>

#include <algorithm>

namespace muster {

std::uint64_t TextPrint(std::string_view text) {
  return std::max<std::uint64_t>(1, XXH3_64bits(text.data(), text.size()));
}

ArchivedJob ArchivedJobOf(const JobRecord& job) {
  return {.id = job.id,
          .state = job.state,
          .submit_order = job.submit_order,
          .ended_unix_ms = job.ended_unix_ms,
          .key_print = job.key.empty() ? 0 : TextPrint(SubmitKey(job)),
          .spec_print = TextPrint(job.spec_yaml)};
}

}  // namespace muster
