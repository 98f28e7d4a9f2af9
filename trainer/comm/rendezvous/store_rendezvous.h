// StoreMeeting: where the ranks of a gang on several hosts leave each other words, in the store of
// one generation: a GangStore, which accepts no client without the generation's token, or where
// there is no token c10d's TCPStore. It serves until Close, since groups may form at any time.
//
// Threads: Cancel may be called by any thread, everything else by the trainer's alone.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "trainer/comm/interrupt.h"
#include "trainer/comm/transport.h"

namespace muster {

class GangStore;
class StoreClient;
class TcpStoreServer;

class StoreMeeting {
 public:
  // While it lives, Cancel also calls `interrupt`; at once if it was called already.
  class OnCancel {
   public:
    OnCancel(StoreMeeting& meeting, std::function<void()> interrupt);
    ~OnCancel();
    OnCancel(const OnCancel&) = delete;
    OnCancel& operator=(const OnCancel&) = delete;

   private:
    StoreMeeting& meeting_;
  };

  StoreMeeting();
  ~StoreMeeting();

  Status Open(Rendezvous rendezvous, Deadline deadline);
  void Close();
  bool is_open() const { return client_ != nullptr; }
  // The address that peers reach this process at.
  const std::string& address() const { return address_; }
  // The generation's token; empty: there is none.
  const std::string& token() const { return token_; }

  Status Publish(const std::string& key, const std::string& value);
  // Waits for what `rank` publishes; kDeadlineExceeded names it.
  Result<std::string> Await(const std::string& key, int rank, Deadline deadline);
  // The same of ranks 0 to ranks-1, each under the key `stem` + its number; in a number of messages
  // that does not depend on theirs.
  Result<std::vector<std::string>> AwaitAll(const std::string& stem, int ranks, Deadline deadline);

  // Makes every wait under way or to come return kCancelled, until Rearm.
  void Cancel();
  void Rearm();

 private:
  Status Serve(Rendezvous& rendezvous, Deadline deadline);
  // Key i is published by rank `first` + i.
  Status AwaitKeys(const std::vector<std::string>& keys, int first, Deadline deadline);
  Status NameMissing(const std::vector<std::string>& keys, int first);

  Interrupt interrupted_;  // by Cancel
  std::mutex mutex_;
  bool cancelled_ = false;
  std::function<void()> interrupt_;
  std::unique_ptr<TcpStoreServer> server_;
  std::unique_ptr<GangStore> gang_store_;
  std::unique_ptr<StoreClient> client_;
  std::string address_;
  std::string token_;
};

}  // namespace muster
