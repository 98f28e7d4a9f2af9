// Cluster: a coordinator's core with nodes n1 and n2 and a job that trains on both, as it is after
// a start of the coordinator. For targets whose input changes it.
//
// After each event it checks the controller's invariants, and does with the effects what a
// coordinator would: operations become text of the store, messages go to the wire, as do the views
// of what has changed. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/base/clock.h"
#include "coordinator/control/controller.h"

namespace muster::fuzz {

class Cluster {
 public:
  Cluster();
  ~Cluster();

  void Handle(const Event& event);
  // Time passes, and what is due then happens.
  void Wait(Duration duration);
  // Every view that a client or the page can ask for.
  void ShowAll() const;

  const Controller& controller() const { return *controller_; }
  const JobId& job() const;
  Now now() const { return now_; }
  SessionId session_of_n1() const { return 1; }
  SessionId NewSession() { return ++sessions_; }

 private:
  void Apply(const Effects& effects) const;

  Now now_;
  SessionId sessions_ = 2;
  std::unique_ptr<Controller> controller_;
};

}  // namespace muster::fuzz
