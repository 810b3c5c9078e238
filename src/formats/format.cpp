#include "formats/format.hpp"

#include <string>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"

namespace tenfold::detail::formats {

namespace {

[[noreturn]] void refuse_to_write(const Format& format) {
  throw base::unsupported()
      .part("format ", base::quote(format.name))
      .problem("this version reads ", format.noun, " and writes none")
      .expected(
          "\"memmap\" or \"snapshot\" (folders), \"tdz\", \"safetensors\", \"npy\", \"npz\", "
          "\"pt\" or \"consolidated\"")
      .found(base::quote(format.name));
}

}  // namespace

TensorDict Format::open(const FileHead& head, const OpenRequest& request) const {
  if (request.mode == Mode::write_through && !is_writable_in_place) {
    throw base::unsupported(head.path().string())
        .part("mode")
        .problem(noun, " cannot be changed in place")
        .expected("\"r\" or \"c\"")
        .found("\"r+\"")
        .remedy("save it as a memmap folder");
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
    throw base::unsupported(path.string())
        .part("memmap_like")
        .problem("cannot create ", noun)
        .expected("a folder or a \".tdz\" archive")
        .found("the format ", base::quote(name));
  }
  write_tree(tree, path, request);
}

}  // namespace tenfold::detail::formats
