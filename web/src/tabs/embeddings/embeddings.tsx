// Embeddings: one-hot times a table, token vectors in the plane, sentence vectors.
import { Intro } from "../../controls/controls";
import { useShown } from "../../state/runs";
import "./embeddings.css";
import { OneHot } from "./one_hot";
import { WordPlane } from "./plane";
import { Sentences } from "./sentences";

export function Embeddings() {
  useShown([]);
  return (
    <>
      <Intro title="Embeddings">
        A network computes with vectors, not with words. A table gives each token its vector; training moves the vectors of
        similar tokens together. A sentence gets one vector from those of its tokens (A1 to A3).
      </Intro>
      <OneHot />
      <WordPlane />
      <Sentences />
    </>
  );
}
