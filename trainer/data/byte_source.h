// ByteSource: the bytes of a file in order, decompressed where they are gzip's.
//
// Owned by one thread. After the end or an error, status() says which.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace muster {

class ByteSource {
 public:
  static Result<ByteSource> Open(const std::string& path);

  // The next byte, 0 to 255; -1: there is none.
  int Next() {
    if (at_ == end_ && !Fill()) return -1;
    return static_cast<unsigned char>(buffer_[at_++]);
  }
  // Appends up to the next line feed, which is taken as well, or up to the end; at most
  // `max_bytes`, more being kInvalidArgument. False: there was nothing left. True with an error in
  // status(): the line has begun.
  bool Line(std::size_t max_bytes, std::string* out);
  // OK, or why there are no more bytes before the end.
  const Status& status() const { return status_; }

 private:
  struct Close {
    void operator()(gzFile_s* file) const { gzclose(file); }
  };

  ByteSource(std::string path, gzFile_s* file);
  bool Fill();

  std::string path_;
  std::unique_ptr<gzFile_s, Close> file_;
  std::vector<char> buffer_;
  std::size_t at_ = 0;
  std::size_t end_ = 0;
  Status status_;
};

}  // namespace muster
