#include "worker/agent/owner_frames.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <vector>

#include "common/wire/codec.h"

namespace muster::worker {
namespace {

using Json = nlohmann::json;

// More than any frame has. The library reads containers by recursion, and all that has one byte
// takes many in memory.
constexpr int kMaxContainers = 1024;
constexpr int kMaxElements = 1 << 16;

class FrameBuilder : public nlohmann::detail::json_sax_dom_parser<Json> {
 public:
  explicit FrameBuilder(Json& object) : json_sax_dom_parser(object, /*allow_exceptions=*/false) {}
  bool start_object(std::size_t size) {
    return ++containers_ <= kMaxContainers && json_sax_dom_parser::start_object(size);
  }
  bool start_array(std::size_t size) {
    return ++containers_ <= kMaxContainers && json_sax_dom_parser::start_array(size);
  }
  bool key(Json::string_t& name) { return CountOne() && json_sax_dom_parser::key(name); }
  bool null() { return CountOne() && json_sax_dom_parser::null(); }
  bool boolean(bool value) { return CountOne() && json_sax_dom_parser::boolean(value); }
  bool number_integer(Json::number_integer_t value) {
    return CountOne() && json_sax_dom_parser::number_integer(value);
  }
  bool number_unsigned(Json::number_unsigned_t value) {
    return CountOne() && json_sax_dom_parser::number_unsigned(value);
  }
  bool number_float(Json::number_float_t value, const Json::string_t& text) {
    return CountOne() && json_sax_dom_parser::number_float(value, text);
  }
  bool string(Json::string_t& value) { return CountOne() && json_sax_dom_parser::string(value); }
  bool binary(Json::binary_t& value) { return CountOne() && json_sax_dom_parser::binary(value); }

 private:
  bool CountOne() { return ++elements_ <= kMaxElements; }

  int containers_ = 0;
  int elements_ = 0;
};

Result<Json> ParseFrame(const std::vector<std::uint8_t>& body) {
  Json object;
  FrameBuilder builder(object);
  try {
    if (Json::sax_parse(body, &builder, Json::input_format_t::cbor) && object.is_object())
      return object;
  } catch (const Json::exception&) {  // a length that no memory has
  }
  return DataLoss("a frame is no object");
}

Status WaitFor(int fd, short events, Deadline deadline) {
  for (;;) {
    pollfd entry{fd, events, 0};
    const int n = ::poll(&entry, 1, static_cast<int>(deadline.RemainingMillis().count()));
    if (n > 0) return OkStatus();
    if (n == 0) return DeadlineExceeded("the file server of the account does not answer");
    if (errno != EINTR) return ErrnoStatus(errno, "poll");
  }
}

// All of the bytes by `transfer`, which is send or recv of what is left.
template <typename Transfer>
Status MoveAll(int fd, short events, std::size_t size, Deadline deadline, Transfer transfer) {
  for (std::size_t done = 0; done < size;) {
    const ssize_t n = transfer(done);
    if (n > 0) {
      done += static_cast<std::size_t>(n);
    } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      MUSTER_RETURN_IF_ERROR(WaitFor(fd, events, deadline));
    } else if (n == 0 || errno != EINTR) {
      return Unavailable("the file server of the account has ended");
    }
  }
  return OkStatus();
}

Status Receive(int fd, void* to, std::size_t size, Deadline deadline) {
  return MoveAll(fd, POLLIN, size, deadline, [&](std::size_t done) {
    return ::recv(fd, static_cast<char*>(to) + done, size - done, MSG_DONTWAIT);
  });
}

template <typename Message>
Json PackedProto(const Message& message) {
  const std::string bytes = ToProto(message).SerializeAsString();
  return Json::binary({bytes.begin(), bytes.end()});
}

template <typename Proto>
Result<Proto> ParseProto(const Json& field) {
  Proto proto;
  if (!field.is_binary() ||
      !proto.ParseFromArray(field.get_binary().data(), static_cast<int>(field.get_binary().size())))
    return DataLoss("a frame without its message");
  return proto;
}

}  // namespace

Result<std::pair<UniqueFd, UniqueFd>> FramePair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return ErrnoStatus(errno, "socketpair");
  return std::pair{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

Status WriteFrame(int fd, const Json& object, Deadline deadline) {
  const std::vector<std::uint8_t> body = Json::to_cbor(object);
  if (body.size() > kMaxFrameBytes) return ResourceExhausted("a frame is too large");
  const auto size = static_cast<std::uint32_t>(body.size());
  std::vector<std::uint8_t> bytes(sizeof size + body.size());
  std::memcpy(bytes.data(), &size, sizeof size);
  std::memcpy(bytes.data() + sizeof size, body.data(), body.size());
  return MoveAll(fd, POLLOUT, bytes.size(), deadline, [&](std::size_t done) {
    return ::send(fd, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL | MSG_DONTWAIT);
  });
}

Result<Json> ReadFrame(int fd, Deadline deadline) {
  std::uint32_t size = 0;
  MUSTER_RETURN_IF_ERROR(Receive(fd, &size, sizeof size, deadline));
  if (size > kMaxFrameBytes) return DataLoss("a frame is too large");
  std::vector<std::uint8_t> body(size);
  MUSTER_RETURN_IF_ERROR(Receive(fd, body.data(), body.size(), deadline));
  return ParseFrame(body);
}

Json Packed(const CoordinatorMessage& message) { return PackedProto(message); }
Json Packed(const WorkerMessage& message) { return PackedProto(message); }

Result<CoordinatorMessage> UnpackOrder(const Json& field) {
  MUSTER_ASSIGN_OR_RETURN(const auto proto, ParseProto<v1::CoordinatorMessage>(field));
  return FromProto(proto);
}

Result<WorkerMessage> UnpackReport(const Json& field) {
  MUSTER_ASSIGN_OR_RETURN(auto proto, ParseProto<v1::WorkerMessage>(field));
  return FromProto(std::move(proto));
}

void AddStatus(const Status& status, Json* object) {
  (*object)["code"] = static_cast<int>(status.code());
  (*object)["message"] = status.message();
}

Status StatusIn(const Json& object) {
  const auto code = object.find("code");
  const auto message = object.find("message");
  if (code == object.end() || !code->is_number_integer() || message == object.end() ||
      !message->is_string())
    return DataLoss("a frame without a status");
  if (*code == 0) return OkStatus();
  return {*code > 0 && *code <= static_cast<int>(StatusCode::kUnauthenticated)
              ? static_cast<StatusCode>(code->get<int>())
              : StatusCode::kUnknown,
          message->get<std::string>()};
}

}  // namespace muster::worker
