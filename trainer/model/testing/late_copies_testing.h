// LateCopies: a device apart from the host whose copies happen as late as the contract allows, so
// that a missing wait is seen as wrong numbers.
#pragma once

#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "trainer/ops/testing/forwarding_ops.h"

namespace muster {

class LateCopies : public ForwardingOps {
 public:
  using ForwardingOps::ForwardingOps;

  bool is_host() const override { return false; }
  std::unique_ptr<DeviceCopy> Copy(void* to, const void* from, std::size_t bytes) override {
    pending_.push_back([=] { std::memcpy(to, from, bytes); });
    return std::make_unique<Late>(*this, ++begun_);
  }
  int begun() const { return begun_; }

 private:
  class Late : public DeviceCopy {
   public:
    Late(LateCopies& copies, int number) : copies_(copies), number_(number) {}
    void WaitOnDevice() override { copies_.Finish(number_); }
    void WaitOnHost() override { copies_.Finish(number_); }

   private:
    LateCopies& copies_;
    int number_;
  };

  void Finish(int number) {
    for (; done_ < number; ++done_) {
      pending_.front()();
      pending_.pop_front();
    }
  }

  std::deque<std::function<void()>> pending_;
  int begun_ = 0;
  int done_ = 0;
};

}  // namespace muster
