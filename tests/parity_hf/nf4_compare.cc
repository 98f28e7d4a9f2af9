// Quantises the values of files that tests/golden/make_nf4_golden.py has written, and counts the
// bytes in which the result differs from the file's, as one line of JSON for each file.
//
//   nf4_compare FILE...
#include <cstdio>

#include "trainer/ops/testing/nf4_testing.h"

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const muster::Result<muster::Nf4Differences> found = muster::CompareNf4(argv[i]);
    if (!found.ok()) {
      std::fprintf(stderr, "%s\n", found.status().ToString().c_str());
      return 1;
    }
    const auto count = [](std::int64_t number) { return static_cast<long long>(number); };
    std::printf(
        "{\"values\": %lld, \"codes\": %lld, \"absmax\": %lld, \"offset\": %lld, "
        "\"absmax_codes\": %lld, \"nested_absmax\": %lld, \"nested_code\": %lld, "
        "\"read_back\": %lld}\n",
        count(found->values), count(found->codes), count(found->absmax), count(found->offset),
        count(found->absmax_codes), count(found->nested_absmax), count(found->nested_code),
        count(found->read_back));
  }
  return 0;
}
