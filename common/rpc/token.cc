#include "common/rpc/token.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "common/base/files.h"
#include "common/base/unique_fd.h"

namespace muster {
namespace {

constexpr std::size_t kTokenBytes = 32;
constexpr std::size_t kTokenDigits = 2 * kTokenBytes;
constexpr char kBearer[] = "Bearer ";

Result<std::string> RandomToken() {
  unsigned char bytes[kTokenBytes];
  if (::getrandom(bytes, sizeof bytes, 0) != static_cast<ssize_t>(sizeof bytes))
    return ErrnoStatus(errno, "getrandom");
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string token;
  for (const unsigned char byte : bytes) {
    token += kDigits[byte >> 4];
    token += kDigits[byte & 15];
  }
  return token;
}

// link() and not rename(): it fails where the file exists, so the first of two creators wins and
// no process ever reads a half-written token.
Status CreateTokenFile(const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(const std::string token, RandomToken());
  MUSTER_ASSIGN_OR_RETURN(const std::string suffix, RandomToken());
  const std::string temporary = path + ".new." + suffix.substr(0, 8);
  MUSTER_RETURN_IF_ERROR(WriteFileAtomically(temporary, token + "\n", 0600));
  const int linked = ::link(temporary.c_str(), path.c_str());
  const int error = errno;
  ::unlink(temporary.c_str());
  if (linked != 0 && error != EEXIST) return ErrnoStatus(error, "create token file " + path);
  return OkStatus();
}

bool IsToken(std::string_view text) {
  return text.size() == kTokenDigits &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool EqualInConstantTime(std::string_view presented, std::string_view expected) {
  unsigned char difference = presented.size() == expected.size() ? 0 : 1;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const char other = i < presented.size() ? presented[i] : '\0';
    difference |= static_cast<unsigned char>(other ^ expected[i]);
  }
  return difference == 0;
}

}  // namespace

Result<std::string> LoadToken(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return ErrnoStatus(errno, "token file " + path);
  if ((info.st_mode & 077) != 0)
    return PermissionDenied(
        "token file " + path +
        " may be read by others, so its secret may be known; remove it, restart "
        "the coordinator, and it makes a new one of mode 0600");
  MUSTER_ASSIGN_OR_RETURN(std::string token, ReadFile(path, 4096));
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) token.pop_back();
  if (!IsToken(token))
    return DataLoss("token file " + path +
                    " does not hold 64 hexadecimal digits; remove it and restart the coordinator");
  return token;
}

Result<std::string> LoadOrCreateToken(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    if (errno != ENOENT) return ErrnoStatus(errno, "token file " + path);
    MUSTER_RETURN_IF_ERROR(CreateTokenFile(path));
  }
  return LoadToken(path);
}

void AttachToken(grpc::ClientContext& context, const std::string& token) {
  context.AddMetadata("authorization", kBearer + token);
}

grpc::Status CheckToken(const grpc::CallbackServerContext& context, const std::string& token) {
  const auto& metadata = context.client_metadata();
  const auto entry = metadata.find("authorization");
  const std::string expected = kBearer + token;
  const std::string_view presented =
      entry == metadata.end() ? std::string_view()
                              : std::string_view(entry->second.data(), entry->second.size());
  if (EqualInConstantTime(presented, expected)) return grpc::Status::OK;
  return {grpc::StatusCode::UNAUTHENTICATED,
          "the call carries no valid cluster token; use the token file of this cluster "
          "(DIR/coordinator/token)"};
}

}  // namespace muster
