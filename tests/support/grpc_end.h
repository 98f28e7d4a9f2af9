// Lets gRPC come to its end before the test program does. Include it where gRPC speaks TLS.
//
// gRPC may shut down on a thread of its own after its last object is gone. A thread that ends while
// the process exits loses what OpenSSL keeps for it, which LeakSanitizer reports now and then.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <thread>

#include "tests/support/eventually.h"

namespace muster {

class GrpcEnd : public testing::Environment {
 public:
  void SetUp() override {
    std::thread([] {}).join();  // ThreadSanitizer starts one of its own with the first
    threads_ = Threads();
  }
  void TearDown() override {
    EXPECT_TRUE(Eventually([this] { return Threads() <= threads_; }, std::chrono::seconds(30)))
        << "threads are left: something holds gRPC";
  }

 private:
  static std::ptrdiff_t Threads() {
    std::error_code error;
    const std::filesystem::directory_iterator tasks("/proc/self/task", error);
    return std::distance(begin(tasks), end(tasks));
  }

  std::ptrdiff_t threads_ = 0;
};

// GoogleTest owns it; one for each program.
inline testing::Environment* const kGrpcEnd = testing::AddGlobalTestEnvironment(new GrpcEnd);

}  // namespace muster
