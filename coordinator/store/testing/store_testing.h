// Shared by tests of the stores: commits of numbered jobs, and a child that is killed between them.
// Test thread only.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "coordinator/store/store.h"

namespace muster {

inline StoreOperation NumberedJob(int number) {
  JobRecord job;
  job.id = JobId{std::to_string(number)};
  return PutJob{job};
}

inline Status CommitAndWait(Store& store, std::vector<StoreOperation> operations) {
  std::promise<Status> done;
  store.Commit(std::move(operations), [&](const Status& status) { done.set_value(status); });
  return done.get_future().get();
}

// A child opens a store, commits job after job (0, 1, 2, ...), and is killed once it has confirmed
// `enough` commits as durable. Returns how many it has confirmed in all; 0 and a test failure if
// there was no child.
inline std::size_t CommitsUntilKilled(const std::function<Result<std::unique_ptr<Store>>()>& open,
                                      std::size_t enough) {
  int ends[2];
  if (::pipe(ends) != 0) {
    ADD_FAILURE() << "no pipe";
    return 0;
  }
  const pid_t child = ::fork();
  if (child < 0) {
    ADD_FAILURE() << "no child";
    return 0;
  }
  if (child == 0) {
    ::close(ends[0]);
    const auto store = open();
    for (int i = 0; store.ok() && CommitAndWait(**store, {NumberedJob(i)}).ok(); ++i)
      if (::write(ends[1], "x", 1) != 1) break;
    ::_exit(1);
  }
  ::close(ends[1]);
  std::size_t told = 0;
  char byte = 0;
  while (told < enough && ::read(ends[0], &byte, 1) == 1) ++told;
  ::kill(child, SIGKILL);
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  while (::read(ends[0], &byte, 1) == 1) ++told;
  ::close(ends[0]);
  EXPECT_GE(told, enough) << "it ended by itself";
  return told;
}

}  // namespace muster
