#include "common/rpc/endpoint.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "common/base/files.h"
#include "common/rpc/grpc_status.h"

namespace muster {
namespace {

TEST(CheckListenAddress, AllowsLoopbackAndSocketsOnly) {
  for (const char* address :
       {"127.0.0.1:0", "127.1.2.3:7000", "localhost:65535", "[::1]:80", "unix:/tmp/x", "unix:x"})
    EXPECT_TRUE(CheckListenAddress(address).ok()) << address;
  for (const char* address :
       {"0.0.0.0:7000", "[::]:7000", "10.0.0.1:7000", "example:7000", "128.0.0.1:7000",
        "[::ffff:127.0.0.1]:7000", "localhost.evil:1", "127.0.0.1.evil:1", ":7000"})
    EXPECT_EQ(CheckListenAddress(address).code(), StatusCode::kPermissionDenied) << address;
  for (const char* address :
       {"", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "127.0.0.1:-1", "unix:"})
    EXPECT_EQ(CheckListenAddress(address).code(), StatusCode::kInvalidArgument) << address;
  EXPECT_EQ(CheckListenAddress("0.0.0.0:7").message(),
            "listening in plain text on '0.0.0.0:7' is refused; use 127.0.0.1:PORT or unix:PATH, "
            "and for other machines --tls-listen or --tls-http");
}

TEST(CheckTlsListenAddress, TakesAddressesAndNoNames) {
  for (const char* address :
       {"127.0.0.1:0", "0.0.0.0:7000", "10.0.0.1:65535", "[::]:7", "[fe80::1]:1"})
    EXPECT_TRUE(CheckTlsListenAddress(address).ok()) << address;
  for (const char* address : {"", "localhost:1", "host.example:1", "10.0.0.1", "10.0.0.1:", ":7",
                              "10.0.0.1:65536", "::1:7", "unix:/tmp/x", "[10.0.0.1]:1"})
    EXPECT_EQ(CheckTlsListenAddress(address).code(), StatusCode::kInvalidArgument) << address;
}

TEST(SplitAddress, IsUndoneByJoinAddress) {
  for (const char* address : {"127.0.0.1:0", "[::1]:80", "localhost:65535"})
    EXPECT_EQ(JoinAddress(SplitAddress(address)), address);
  EXPECT_EQ(SplitAddress("[::1]:80").host, "::1");
}

TEST(Endpoint, SurvivesItsFile) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("muster-endpoint-" + std::to_string(::getpid())))
          .string();
  const Endpoint endpoint{"unix:/a \"b\"", "127.0.0.1:2", 77};
  ASSERT_TRUE(WriteEndpoint(path, endpoint).ok());
  EXPECT_EQ(*ReadEndpoint(path), endpoint);
  const Endpoint with_tls{"127.0.0.1:1", "127.0.0.1:2", 77, "10.0.0.1:3", "10.0.0.1:4"};
  ASSERT_TRUE(WriteEndpoint(path, with_tls).ok());
  EXPECT_EQ(*ReadEndpoint(path), with_tls);
  const Endpoint of_journal{
      .grpc = "127.0.0.1:1", .http = "127.0.0.1:2", .pid = 77, .epoch = 5, .page_key = "5ec"};
  ASSERT_TRUE(WriteEndpoint(path, of_journal).ok());
  EXPECT_EQ(*ReadEndpoint(path), of_journal);
  for (const char* text : {"", "[]", "{}", "{\"grpc\": 1, \"http\": \"\", \"pid\": 1}",
                           "{\"grpc\": \"a\", \"http\": \"b\"}"}) {
    ASSERT_TRUE(WriteFileAtomically(path, text).ok());
    EXPECT_EQ(ReadEndpoint(path).status().code(), StatusCode::kDataLoss) << text;
  }
  ::unlink(path.c_str());
  EXPECT_EQ(ReadEndpoint(path).status().code(), StatusCode::kNotFound);
}

TEST(GrpcStatus, GoesThereAndBack) {
  for (int code = 0; code <= 16; ++code) {
    const Status status(static_cast<StatusCode>(code), code == 0 ? "" : "why");
    EXPECT_EQ(FromGrpcStatus(ToGrpcStatus(status)), status) << code;
  }
  EXPECT_EQ(static_cast<int>(ToGrpcStatus(NotFound("x")).error_code()), 5);
}

TEST(GrpcStatus, ALongMessageIsCutToFitTheTrailer) {
  EXPECT_LT(ToGrpcStatus(NotFound(std::string(100'000, 'x'))).error_message().size(), 2100u);
}

}  // namespace
}  // namespace muster
