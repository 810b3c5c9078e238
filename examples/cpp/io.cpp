// Save, open, load, verify, convert, and load into existing tensors.
#include <tenfold/io.hpp>

#include <iostream>

int main() {
  tenfold::TensorDict model;
  model.set("head.weight", tenfold::Tensor::from<float>({1, 2, 3, 4}, {2, 2}));
  model.set("head.bias", tenfold::Tensor::from<float>({0.5F, -0.5F}));
  tenfold::save(tenfold::TensorDict::dict({{"model", model}, {"epoch", 3}}), "ckpt");

  const tenfold::TensorDict opened = tenfold::open("ckpt");  // lazy, any format
  const tenfold::Tensor weight = opened.at("model.head.weight");
  const tenfold::TensorDict some = tenfold::load("ckpt", {.keys = {"model.*"}, .verify = true});
  if (some.contains("epoch") || weight.at<float>(1, 0) != 3) return 1;

  const tenfold::VerifyReport report = tenfold::verify("ckpt");  // every checksum
  for (const tenfold::Problem& problem : report.problems) std::cerr << problem.what << '\n';
  if (!report.ok()) return 1;

  tenfold::convert("ckpt", "weights.safetensors",
                   {.keys = {"model"}, .exclude = {"*.bias"}, .dtype = tenfold::DType::bfloat16});
  if (tenfold::open("weights.safetensors").at("model.head.weight").dtype() !=
      tenfold::DType::bfloat16) {
    return 1;
  }

  tenfold::TensorDict target;
  target.set("head.weight", tenfold::Tensor::zeros(tenfold::DType::float32, {2, 2}));
  target.set("head.bias", tenfold::Tensor::zeros(tenfold::DType::float32, {2}));
  tenfold::load_into(target, opened["model"]);  // no copy in between
  return target.at("head.bias").at<float>(1) == -0.5F ? 0 : 1;
}
