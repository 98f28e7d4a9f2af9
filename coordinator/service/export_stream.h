// ExportStream: the answer of ExportSchedule, which is larger than a message may be, in parts.
//
// gRPC has it until OnDone. Send or End is called once, on any thread; what comes after the caller
// has gone is dropped.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>

#include "muster/v1/client_api.pb.h"

namespace muster {

class ExportStream final : public grpc::ServerWriteReactor<v1::ExportScheduleResponse>,
                           public std::enable_shared_from_this<ExportStream> {
 public:
  static constexpr std::size_t kPartBytes = 1 << 20;

  // `streams` counts this one until it has ended, and outlives it.
  static std::shared_ptr<ExportStream> Begin(std::atomic<int>& streams);

  // All of it, then the end.
  void Send(std::string recording);
  void End(const grpc::Status& status);

 private:
  explicit ExportStream(std::atomic<int>& streams) : streams_(streams) { ++streams_; }
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;
  void WriteNext();
  void Close(const grpc::Status& status);

  std::atomic<int>& streams_;
  std::mutex mutex_;  // of all that follows
  bool writing_ = false, closed_ = false;
  std::string recording_;
  std::size_t written_ = 0;
  v1::ExportScheduleResponse part_;
  std::shared_ptr<ExportStream> self_;  // until OnDone
};

}  // namespace muster
