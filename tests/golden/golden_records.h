// A record of every kind that a coordinator stores, every field of it filled. Tests only.
#pragma once

#include "coordinator/store/store.h"

namespace muster::golden {

// What releases have stored: `operations`, in their order, make `state`, and an archived job with
// its attempt and its checkpoint.
struct GoldenRecords {
  std::vector<StoreOperation> operations;
  StoredState state;
  ArchivedRecords archived;
};
GoldenRecords MakeGoldenRecords();

// That the store has them.
void ExpectGoldenRecords(Store& store);

}  // namespace muster::golden
