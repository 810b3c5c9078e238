#include "formats/format.hpp"

#include <string>

#include <tenfold/error.hpp>

#include "base/text.hpp"

namespace tenfold::detail::formats {

namespace {

[[noreturn]] void refuse_to_write(const Format& format) {
  throw Error(ErrorCode::unsupported,
              "format " + base::quote(format.name) + ": this version reads " +
                  std::string(format.noun) +
                  " and writes none: expected \"memmap\" or \"snapshot\" (folders), \"tdz\", "
                  "\"safetensors\", \"npy\", \"npz\", \"pt\" or \"consolidated\", found " +
                  base::quote(format.name));
}

}  // namespace

TensorDict Format::open(const FileHead& head, const OpenRequest& request) const {
  if (request.mode == Mode::write_through && !is_writable_in_place) {
    throw Error(ErrorCode::unsupported,
                head.path().string() + ": mode: " + std::string(noun) +
                    " cannot be written through: expected \"r\" or \"c\", found \"r+\"; save it "
                    "as a memmap folder");
  }
  return open_tree(head, request);
}

void Format::check(const TensorDict& tree) const {
  if (check_tree == nullptr) refuse_to_write(*this);
  check_tree(tree);
}

void Format::write(const TensorDict& tree, const Path& path, const WriteRequest& request) const {
  if (write_tree == nullptr) refuse_to_write(*this);
  if (request.zeros && !holds_zeros) {
    throw Error(ErrorCode::unsupported,
                path.string() + ": memmap_like: " + std::string(noun) +
                    " cannot be written through: expected a folder or a \".tdz\" archive, found "
                    "the format " +
                    base::quote(name));
  }
  write_tree(tree, path, request);
}

}  // namespace tenfold::detail::formats
