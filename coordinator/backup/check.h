// The invariants that the records of a store keep among each other, checked on its contents.
//
// Pure; any thread. What a coordinator checks while it runs is coordinator/control/invariants.h.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"
#include "coordinator/store/store_contents.h"

namespace muster {

struct Violation {
  std::string table;  // as docs/store-format.md calls it
  std::string key;    // "7f3a9c1e2b", "7f3a9c1e2b/2"; empty: of the table's only record
  std::string what;
  std::string next;  // what to do about it
  friend bool operator==(const Violation&, const Violation&) = default;
};

// All of them, a record that cannot be read included. kDataLoss: the contents are no operations.
Result<std::vector<Violation>> CheckContents(const StoreContents& contents);

}  // namespace muster
