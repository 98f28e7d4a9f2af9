#include "coordinator/service/export_stream.h"

#include <utility>

#include "common/base/failpoint.h"

namespace muster {

std::shared_ptr<ExportStream> ExportStream::Begin(std::atomic<int>& streams) {
  std::shared_ptr<ExportStream> stream(new ExportStream(streams));
  stream->self_ = stream;
  return stream;
}

void ExportStream::Send(std::string recording) {
  const std::lock_guard lock(mutex_);
  Failpoint("export.begun");
  recording_ = std::move(recording);
  if (!closed_) WriteNext();
}

void ExportStream::End(const grpc::Status& status) {
  const std::lock_guard lock(mutex_);
  Close(status);
}

void ExportStream::WriteNext() {
  if (written_ == recording_.size()) return Close(grpc::Status::OK);
  part_.set_recording(recording_.substr(written_, kPartBytes));
  written_ += part_.recording().size();
  writing_ = true;
  StartWrite(&part_);
}

void ExportStream::OnWriteDone(bool ok) {
  const std::lock_guard lock(mutex_);
  writing_ = false;
  ok ? WriteNext() : Close(grpc::Status::CANCELLED);
}

// A write that is under way ends, and closes the stream.
void ExportStream::OnCancel() {
  const std::lock_guard lock(mutex_);
  if (!writing_) Close(grpc::Status::CANCELLED);
}

void ExportStream::Close(const grpc::Status& status) {
  if (std::exchange(closed_, true)) return;
  Finish(status);
}

void ExportStream::OnDone() {
  --streams_;
  const std::shared_ptr<ExportStream> self = [this] {
    const std::lock_guard lock(mutex_);
    return std::move(self_);
  }();
}

}  // namespace muster
