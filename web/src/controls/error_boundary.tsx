// What is shown in place of a view that cannot be drawn, so that no link and no input makes the page white.
import { Component, type ComponentChildren } from "preact";
import { resetTab, stateText } from "../state/url";
import { Alert, Button } from "./controls";

interface Props {
  children: ComponentChildren;
  state: string; // the view is drawn again when it changes
}

export class ErrorBoundary extends Component<Props, { error: Error | null; failedIn: string }> {
  override state = { error: null as Error | null, failedIn: "" };

  static override getDerivedStateFromError(error: unknown) {
    return { error: error instanceof Error ? error : new Error(String(error)), failedIn: stateText() };
  }

  override render() {
    const { error, failedIn } = this.state;
    if (!error || failedIn !== this.props.state) return <View key={failedIn}>{this.props.children}</View>;
    return (
      <section class="panel stacked" data-testid="view-error">
        <h1>This view cannot be drawn</h1>
        <Alert>
          {error.message || error.name}. A number in the address or on the page is probably outside of what can be
          computed.
        </Alert>
        <div class="bar">
          <Button main onClick={resetTab} testid="reset-tab">
            Start this tab with its defaults
          </Button>
          <Button onClick={() => this.setState({ error: null, failedIn: "" })} testid="draw-again">
            Try again
          </Button>
        </div>
      </section>
    );
  }
}

/** The key of this component changes after an error, so that nothing of a half-drawn view is kept. */
function View(props: { children: ComponentChildren }) {
  return <>{props.children}</>;
}
