// A figure with a title and buttons that save it as a picture.
import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";
import { showMessage } from "../controls/toast";
import { download } from "../export/download";
import { figureSvg, svgToPng } from "../export/figure_picture";
import "./figure.css";

/** A figure that can be saved as SVG and PNG: its canvases and SVG drawings, or what `picture` draws. `name` is the file name. */
export function Figure(props: {
  title: string;
  name: string;
  note?: ComponentChildren;
  children: ComponentChildren;
  picture?: () => SVGSVGElement;
  testid?: string;
}) {
  const figure = useRef<HTMLElement>(null);
  const save = async (kind: "svg" | "png") => {
    try {
      const svg = await figureSvg(figure.current!, props.title, props.picture);
      download(kind === "svg" ? svg : await svgToPng(svg), `${props.name}.${kind}`);
    } catch (error) {
      showMessage(`Could not save the picture: ${(error as Error).message}`);
    }
  };
  return (
    <figure ref={figure} data-testid={props.testid}>
      <figcaption>
        <h2>{props.title}</h2>
        <span class="figure-tools">
          {(["png", "svg"] as const).map((kind) => (
            <button
              key={kind}
              type="button"
              class="quiet"
              title={`Save this picture as ${kind.toUpperCase()}`}
              data-testid={`save-${props.name}-${kind}`}
              onClick={() => save(kind)}
            >
              {kind.toUpperCase()}
            </button>
          ))}
        </span>
        {props.note && <p class="note">{props.note}</p>}
      </figcaption>
      <div class="figure-body">{props.children}</div>
    </figure>
  );
}
