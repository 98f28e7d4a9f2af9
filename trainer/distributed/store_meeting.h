// StoreMeeting: where the ranks of a gang on several hosts leave each other words, in the TCPStore
// of one generation. The store serves until Close, since groups may form at any time.
//
// Threads: Cancel may be called by any thread, everything else by the trainer's alone.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "trainer/distributed/communicator.h"

namespace muster {

class StoreSession;

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
  bool is_open() const { return store_ != nullptr; }
  // The address that peers reach this process at.
  const std::string& address() const { return address_; }

  Status Publish(const std::string& key, const std::string& value);
  // Waits for what `rank` publishes; kDeadlineExceeded names it.
  Result<std::string> Await(const std::string& key, int rank, Deadline deadline);

  // Makes every wait under way or to come return kCancelled, until Rearm.
  void Cancel();
  void Rearm();
  bool cancelled();

 private:
  // False as soon as Cancel was called.
  bool PauseUnlessCancelled(Duration pause);

  std::mutex mutex_;
  std::condition_variable changed_;
  bool cancelled_ = false;
  std::function<void()> interrupt_;
  std::unique_ptr<StoreSession> store_;
  std::string address_;
};

}  // namespace muster
