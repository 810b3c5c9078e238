// Times the ways to fill the parameters of a LibTorch module: load_into and torch::load of files
// in the page cache, and pread and memcpy of the same bytes. All contenders run in one process,
// interleaved in rotating order. libtorch.py compiles this program and creates the first two files.
//
//   libtorch MODEL.safetensors MODEL_FOLDER MODEL.pt REPETITIONS
//
// Writes MODEL.pt. Prints {"contender": [seconds, ...], ...}; the first round does not count.

#include <fcntl.h>
#include <unistd.h>

#include <torch/nn/module.h>
#include <torch/serialize.h>
#include <tenfold/tenfold.hpp>
#include <tenfold/torch.hpp>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using Tensors = std::vector<at::Tensor>;

struct Contender {
  std::string name;
  std::function<void()> run;
  const Tensors* filled;  ///< compared with the source in the first round; null: not compared
  std::vector<double> seconds{};
};

/// Registers a parameter with the dotted name `path` below `root`. Creates the missing modules of
/// the path.
void add_parameter(const std::shared_ptr<torch::nn::Module>& root, const std::string& path,
                   const at::Tensor& tensor) {
  std::shared_ptr<torch::nn::Module> module = root;
  std::size_t begin = 0;
  for (std::size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', begin)) {
    const std::string name = path.substr(begin, dot - begin);
    const auto children = module->named_children();
    const auto* known = children.find(name);
    module = known != nullptr
                 ? *known
                 : module->register_module(name, std::make_shared<torch::nn::Module>());
    begin = dot + 1;
  }
  module->register_parameter(path.substr(begin), tensor);
}

/// Returns a module whose parameters have the names, shapes and dtypes of the tensors of the file.
/// Their memory has been written, so that no load causes page faults there.
std::shared_ptr<torch::nn::Module> module_like(const tenfold::TensorDict& file) {
  auto module = std::make_shared<torch::nn::Module>();
  for (const std::string& name : file.keys()) {
    const at::Tensor like = tenfold::to_torch(file.at(name));
    add_parameter(module, name, at::ones_like(like));
  }
  return module;
}

/// Returns the parameters sorted by name, which is their order in the safetensors file.
Tensors sorted_parameters(const torch::nn::Module& module) {
  std::map<std::string, at::Tensor> by_name;
  for (const auto& item : module.named_parameters()) by_name.emplace(item.key(), item.value());
  Tensors sorted;
  for (const auto& [name, tensor] : by_name) sorted.push_back(tensor);
  return sorted;
}

/// Calls `work` with 0 to `count` - 1 on `num_threads` threads.
void on_threads(int num_threads, std::size_t count, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  const auto loop = [&] {
    for (std::size_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::thread> threads;
  for (int t = 1; t < num_threads; ++t) threads.emplace_back(loop);
  loop();
  for (std::thread& thread : threads) thread.join();
}

void copy(const Tensors& to, const Tensors& from, int num_threads) {
  on_threads(num_threads, to.size(), [&](std::size_t i) {
    std::memcpy(to[i].data_ptr(), from[i].const_data_ptr(), to[i].nbytes());
  });
}

/// Reads the tensors of a safetensors file, which are in the order of `to`, with one pread each.
void read(const Tensors& to, const std::string& path, int num_threads) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  std::uint64_t header_bytes = 0;
  if (fd < 0 || ::pread(fd, &header_bytes, sizeof header_bytes, 0) != sizeof header_bytes) {
    throw std::runtime_error(path + " cannot be read");
  }
  std::vector<std::uint64_t> offsets = {sizeof header_bytes + header_bytes};
  for (const at::Tensor& tensor : to) offsets.push_back(offsets.back() + tensor.nbytes());
  on_threads(num_threads, to.size(), [&](std::size_t i) {
    ::pread(fd, to[i].data_ptr(), to[i].nbytes(), static_cast<off_t>(offsets[i]));
  });
  ::close(fd);
}

/// Throws unless `filled` equals `source`, and sets `filled` to zeros for the next contender.
void check(const Tensors& filled, const Tensors& source) {
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (!at::equal(filled[i], source[i]))
      throw std::runtime_error("a parameter differs from its source");
    filled[i].detach().zero_();
  }
}

void time_all(std::vector<Contender>& contenders, const Tensors& source, int repetitions) {
  for (int round = 0; round <= repetitions; ++round) {
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      Contender& contender = contenders[(i + static_cast<std::size_t>(round)) % contenders.size()];
      const auto begin = std::chrono::steady_clock::now();
      contender.run();
      const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
      if (round == 0) {
        if (contender.filled != nullptr) check(*contender.filled, source);
      } else {
        contender.seconds.push_back(passed.count());
      }
    }
  }
}

void print(const std::vector<Contender>& contenders) {
  tenfold::Value::Object result;
  for (const Contender& contender : contenders) {
    tenfold::Value::List seconds;
    for (const double value : contender.seconds) seconds.items.emplace_back(value);
    result.members.emplace_back(contender.name, std::move(seconds));
  }
  std::cout << tenfold::to_json(result) << '\n';
}

void run(const std::string& one, const std::string& folder, const std::string& pickled,
         int repetitions) {
  const auto module = module_like(tenfold::open(one));
  const Tensors parameters = sorted_parameters(*module);
  tenfold::load_into(*module, one);
  Tensors source;
  for (const at::Tensor& parameter : parameters) source.push_back(parameter.detach().clone());
  // torch::load replaces the memory of the parameters, so it has its own module.
  auto other = module_like(tenfold::open(one));
  const Tensors others = sorted_parameters(*other);
  torch::save(module, pickled);
  check(parameters, source);

  const auto compare_names = [&] { tenfold::load_into(*module, one, {.dry_run = true}); };
  const auto load = [&](const std::string& path, int num_threads) {
    return [&module, path, num_threads] {
      tenfold::load_into(*module, path, {.num_threads = num_threads});
    };
  };
  std::vector<Contender> contenders = {
      {"load_into, safetensors, 1 thread", load(one, 1), &parameters},
      {"load_into, safetensors, 2 threads", load(one, 2), &parameters},
      {"load_into, folder, 1 thread", load(folder, 1), &parameters},
      {"load_into, folder, 2 threads", load(folder, 2), &parameters},
      {"pread of the safetensors file, 1 thread", [&] { read(parameters, one, 1); }, &parameters},
      {"pread of the safetensors file, 2 threads", [&] { read(parameters, one, 2); }, &parameters},
      {"memcpy, 1 thread", [&] { copy(parameters, source, 1); }, &parameters},
      {"memcpy, 2 threads", [&] { copy(parameters, source, 2); }, &parameters},
      {"load_into, safetensors, dry run", compare_names, nullptr},
      {"torch::load", [&] { torch::load(other, pickled); }, &others},
  };
  time_all(contenders, source, repetitions);
  print(contenders);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "usage: libtorch MODEL.safetensors MODEL_FOLDER MODEL.pt REPETITIONS\n";
    return 2;
  }
  try {
    run(argv[1], argv[2], argv[3], std::stoi(argv[4]));
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
